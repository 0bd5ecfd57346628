// How a product of two bytes becomes a multiplier of 18 × 18 bits of an ECP5. The bytes are the upper
// bits of its inputs and the lower ones are 0: a sign that is repeated in the upper bits instead would
// take 20 wires more for each multiplier.
(* techmap_celltype = "$mul" *)
module product_of_bytes (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 1;
    parameter B_WIDTH = 1;
    parameter Y_WIDTH = 1;
    input [A_WIDTH - 1 : 0] A;
    input [B_WIDTH - 1 : 0] B;
    output [Y_WIDTH - 1 : 0] Y;

    wire _TECHMAP_FAIL_ = !A_SIGNED || !B_SIGNED || A_WIDTH != 8 || B_WIDTH != 8;
    wire signed [35 : 0] product;
    wire signed [15 : 0] upper = product[35 : 20];
    \$__MUL18X18 #(
        .A_SIGNED(1),
        .B_SIGNED(1),
        .A_WIDTH(18),
        .B_WIDTH(18),
        .Y_WIDTH(36)
    ) multiplier (
        .A({A, 10'b0}),
        .B({B, 10'b0}),
        .Y(product)
    );
    assign Y = upper;
endmodule
