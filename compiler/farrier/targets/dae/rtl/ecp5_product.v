// `product.v` as a multiplier of an ECP5 of 18 × 18 bits, whose own registers it uses. The bytes are the
// upper bits of its inputs and the lower ones are 0: a sign that is repeated in the upper bits instead
// would take 20 wires more for each multiplier.
module product #(
    parameter FACTORS = 1,
    parameter RESULT = 1
) (
    input clk,
    input enable,
    input signed [7 : 0] left,
    input signed [7 : 0] right,
    output signed [15 : 0] result
);
    MULT18X18D #(
        .REG_INPUTA_CLK(FACTORS ? "CLK0" : "NONE"),
        .REG_INPUTB_CLK(FACTORS ? "CLK0" : "NONE"),
        .REG_OUTPUT_CLK(RESULT ? "CLK0" : "NONE"),
        .GSR("DISABLED")
    ) multiplier (
        .CLK0(clk), .CE0(enable), .RST0(1'b0), .SIGNEDA(1'b1),
        .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),
        .A0(1'b0), .A1(1'b0), .A2(1'b0), .A3(1'b0), .A4(1'b0), .A5(1'b0),
        .A6(1'b0), .A7(1'b0), .A8(1'b0), .A9(1'b0), .A10(left[0]), .A11(left[1]),
        .A12(left[2]), .A13(left[3]), .A14(left[4]), .A15(left[5]), .A16(left[6]), .A17(left[7]),
        .B0(1'b0), .B1(1'b0), .B2(1'b0), .B3(1'b0), .B4(1'b0), .B5(1'b0),
        .B6(1'b0), .B7(1'b0), .B8(1'b0), .B9(1'b0), .B10(right[0]), .B11(right[1]),
        .B12(right[2]), .B13(right[3]), .B14(right[4]), .B15(right[5]), .B16(right[6]), .B17(right[7]),
        .C0(1'b0), .C1(1'b0), .C2(1'b0), .C3(1'b0), .C4(1'b0), .C5(1'b0),
        .C6(1'b0), .C7(1'b0), .C8(1'b0), .C9(1'b0), .C10(1'b0), .C11(1'b0),
        .C12(1'b0), .C13(1'b0), .C14(1'b0), .C15(1'b0), .C16(1'b0), .C17(1'b0),
        .P20(result[0]), .P21(result[1]), .P22(result[2]), .P23(result[3]),
        .P24(result[4]), .P25(result[5]), .P26(result[6]), .P27(result[7]),
        .P28(result[8]), .P29(result[9]), .P30(result[10]), .P31(result[11]),
        .P32(result[12]), .P33(result[13]), .P34(result[14]), .P35(result[15])
    );
endmodule
