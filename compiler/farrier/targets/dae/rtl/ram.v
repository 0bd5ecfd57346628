// A memory with a port that writes and one that reads, as block RAM is. It holds noise at first.
// What is read while it is written is noise, as it may be in block RAM: Verilator reads the inverse of
// what was there, so that a design which needs a value then is found out.
module ram #(
    parameter WIDTH = 32,
    parameter LANE = 32,  // Bits that an enable of the port that writes is for.
    parameter DEPTH = 2,
    parameter ADDRESS = 1
) (
    input clk,
    input [WIDTH / LANE - 1 : 0] write_enable,
    input [ADDRESS - 1 : 0] write_address,
    input [WIDTH - 1 : 0] write_data,
    input read_enable,
    input [ADDRESS - 1 : 0] read_address,
    output reg [WIDTH - 1 : 0] read_data
);
    (* no_rw_check *) reg [WIDTH - 1 : 0] content [0 : DEPTH - 1];
    integer lane;
    always @(posedge clk) begin
        if (read_enable) begin
            read_data <= content[read_address];
`ifdef VERILATOR
            for (lane = 0; lane < WIDTH / LANE; lane = lane + 1)
                if (write_enable[lane] && write_address == read_address)
                    read_data[lane * LANE +: LANE] <= ~content[read_address][lane * LANE +: LANE];
`endif
        end
        for (lane = 0; lane < WIDTH / LANE; lane = lane + 1)
            if (write_enable[lane])
                content[write_address][lane * LANE +: LANE] <= write_data[lane * LANE +: LANE];
    end
endmodule
