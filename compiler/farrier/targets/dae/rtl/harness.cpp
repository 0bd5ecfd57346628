// Runs the Verilog of an accelerator with a memory behind its port. Reads files of the folder that
// it is given, and writes its results there:
//
//   settings     cycles at most, latency of the port, bytes of a beat, number of arguments
//   code         the words of the instructions
//   bases        where each argument begins in memory, 8 bytes each
//   memory       the bytes of memory, which it replaces
//   events       of each module, at which cycles its instructions begin and end: module, cycle,
//                and 0 or 1, 8 bytes each; the last one is 3, the cycle of the end, 0
#include "Vcore.h"
#include "verilated.h"
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

static std::vector<uint8_t> read_file(const std::string &path) {
    std::vector<uint8_t> bytes;
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) { perror(path.c_str()); exit(2); }
    uint8_t buffer[1 << 16];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
        bytes.insert(bytes.end(), buffer, buffer + n);
    fclose(file);
    return bytes;
}

static void write_file(const std::string &path, const void *data, size_t size) {
    FILE *file = fopen(path.c_str(), "wb");
    if (!file || fwrite(data, 1, size, file) != size) { perror(path.c_str()); exit(2); }
    fclose(file);
}

struct Answer { uint64_t cycle; bool write; uint64_t address; };

int main(int argc, char **argv) {
    const std::string folder = argc > 1 ? argv[1] : ".";
    auto raw = read_file(folder + "/settings");
    uint64_t settings[4];
    memcpy(settings, raw.data(), sizeof settings);
    const uint64_t most = settings[0], latency = settings[1], beat = settings[2];
    auto code = read_file(folder + "/code");
    code.resize((code.size() + beat - 1) / beat * beat);
    auto memory = read_file(folder + "/memory");
    memory.resize(memory.size() + beat);  // A beat may reach beyond the last byte.
    auto bases = read_file(folder + "/bases");
    std::vector<uint64_t> events;
    std::deque<Answer> answers;
    Vcore core;
    auto tick = [&] { core.clk = 0; core.eval(); core.clk = 1; core.eval(); };
    core.rst = 1; tick(); tick(); core.rst = 0;
    for (uint64_t n = 0; n < settings[3]; n++) {
        uint64_t base;
        memcpy(&base, &bases[8 * n], 8);
        core.base_write = 1; core.base_argument = n; core.base_value = base; tick();
    }
    core.base_write = 0;
    core.port_ready = 1;
    size_t at = 0;
    uint64_t cycle = 0;
    bool outside = false;
    for (; cycle < most && !core.finished; cycle++) {
        core.code_valid = at < code.size();
        if (core.code_valid) memcpy(&core.code_data, &code[at], beat);
        core.read_valid = core.written = 0;
        if (!answers.empty() && answers.front().cycle == cycle) {
            const Answer &answer = answers.front();
            core.read_valid = !answer.write;
            core.written = answer.write;
            if (!answer.write) memcpy(&core.read_data, &memory[answer.address], beat);
            answers.pop_front();
        }
        core.clk = 0; core.eval();
        for (uint64_t module = 0; module < 3; module++) {
            // An instruction ends in the cycle behind its last one.
            if (core.ends >> module & 1) events.insert(events.end(), {module, cycle + 1, 1});
            if (core.begins >> module & 1) events.insert(events.end(), {module, cycle, 0});
        }
        if (core.port_valid) {
            uint64_t address = core.port_address, size = core.port_write ? core.port_bytes : beat;
            if (address + size > memory.size()) { outside = true; break; }
            if (core.port_write) memcpy(&memory[address], &core.port_data, size);
            answers.push_back({cycle + 1 + latency, bool(core.port_write), address});
        }
        if (core.code_valid && core.code_ready) at += beat;
        core.clk = 1; core.eval();
    }
    events.insert(events.end(), {3, cycle, core.finished ? 0u : outside ? 2u : 1u});
    memory.resize(memory.size() - beat);
    write_file(folder + "/memory", memory.data(), memory.size());
    write_file(folder + "/events", events.data(), 8 * events.size());
    return 0;
}
