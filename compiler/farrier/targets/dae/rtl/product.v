// A product of two signed bytes, with registers at the factors, at the result, at both or at neither.
// The registers keep their content while `enable` is low.
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
    reg signed [7 : 0] left_before, right_before;
    reg signed [15 : 0] result_before;
    wire signed [7 : 0] left_used = FACTORS ? left_before : left;
    wire signed [7 : 0] right_used = FACTORS ? right_before : right;
    wire signed [15 : 0] value = left_used * right_used;
    assign result = RESULT ? result_before : value;
    always @(posedge clk) begin
        if (enable) begin
            left_before <= left;
            right_before <= right;
            result_before <= value;
        end
    end
endmodule
