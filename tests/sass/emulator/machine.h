// Runs a kernel's machine code, one block after the other: warps whose threads part and meet again, registers, shared
// and local memory, and all that is reached by addresses.
//
// What instructions do with their operands is said here, from what the disassembler calls them; nothing of it is from
// analyzer/kernel_code/sass_flow. What it cannot do ends the run, with a reason: until then all was real. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sass/emulator/memory.h"
#include "tests/sass/emulator/program.h"

namespace nimble::code::emulator {

struct Launch {
  std::vector<std::uint8_t> params;
  std::uint32_t threads = 32, blocks = 1;
  std::vector<std::uint64_t> variables;  // addresses
  std::uint64_t most_steps = 20000;      // instructions of a warp's threads that run together
};

// Memory that is reached by an address, by one thread. Neither shared nor local memory, nor parameters.
struct Access {
  std::uint32_t at = 0;  // instruction
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
  bool reads = false, writes = false;
  std::array<std::uint32_t, 4> stored{};  // what it writes
};

class Machine {
 public:
  using Seen = std::function<void(const Access&)>;

  Machine(const Program& program, const Launch& launch, Memory& memory, Seen seen);

  // Why it did not come to its end; empty where it did.
  std::string run();
  // How often threads waited for others that did not come.
  std::uint64_t forced() const { return forced_; }

  static constexpr std::uint32_t kLanes = 32;
  // Where generic addresses of a block's, a thread's own memory and of the parameters begin; and where the code lies.
  static constexpr std::uint64_t kSharedWindow = 0x7fa1ull << 32, kLocalWindow = 0x7fb2ull << 32,
                                 kParamWindow = 0x7fc3ull << 32, kCodeWindow = (0x7fd4ull << 32) + 0x500;

 private:
  enum class State : std::uint8_t { runs, waits, at_barrier, over };
  struct Lane {
    std::array<std::uint32_t, 256> r{};
    std::array<std::uint32_t, 16> meeting{};  // who meets at a convergence barrier
    std::vector<std::uint32_t> local;
    std::uint32_t p = 0, pc = 0, thread = 0;
    std::uint8_t waits_at = 0;
    State state = State::over;
  };
  struct Warp {
    std::array<Lane, kLanes> lanes;
    std::array<std::uint32_t, 256> ur{};
    std::uint32_t up = 0;
  };
  using Mask = std::uint32_t;

  void begin_block();
  bool step(Warp& warp);
  void wake(Warp& warp);
  bool release_barrier();
  [[noreturn]] void give_up(const std::string& why) const;

  // ---- one instruction, for the threads in `active` ----
  void execute(Warp& warp, Mask active);
  void control(Warp& warp, const Op& op, Mask active);
  void memory(Warp& warp, const Op& op, Mask active);
  void among_lanes(Warp& warp, const Op& op, Mask active);
  void async(Warp& warp, const Op& op, Mask active);
  void matrices(Warp& warp, const Op& op, Mask active);
  void barriers(Warp& warp, const Op& op, Mask active);
  void bulk(Warp& warp, const Op& op, Mask active);
  void tensor(Warp& warp, const Op& op, Mask active);
  void work(Warp& warp, const Op& op, Mask active);
  void compute(Warp& warp, Lane& lane, const Op& op);
  bool integers(Warp& warp, Lane& lane, const Op& op);
  bool bits(Warp& warp, Lane& lane, const Op& op);
  bool floats(Warp& warp, Lane& lane, const Op& op);
  bool doubles(Warp& warp, Lane& lane, const Op& op);
  Mask those_that_do(const Warp& warp, const Op& op, Mask active) const;

  // ---- operands ----
  std::uint32_t raw(const Warp& warp, const Lane& lane, const Source& source, const Op& op, unsigned index = 0) const;
  std::uint64_t raw64(const Warp& warp, const Lane& lane, const Source& source, const Op& op) const;
  float real(const Warp& warp, const Lane& lane, const Source& source, const Op& op) const;
  double real64(const Warp& warp, const Lane& lane, const Source& source, const Op& op) const;
  bool holds(const Warp& warp, const Lane& lane, const Predicate& predicate) const;
  void put(Warp& warp, Lane& lane, const Op& op, std::uint32_t value, unsigned index = 0) const;
  void put64(Warp& warp, Lane& lane, const Op& op, std::uint64_t value) const;
  void put(Warp& warp, Lane& lane, const Predicate& predicate, bool value) const;
  std::uint32_t constant(unsigned bank, std::int64_t offset) const;
  std::uint32_t special(const Lane& lane, unsigned number);
  std::uint32_t at_bit(const Warp& warp, const Lane& lane, const Op& op, unsigned at) const;
  std::uint32_t registers(const Warp& warp, const Lane& lane, const sass::Registers& from, unsigned index) const;

  std::uint32_t stored_word(const Warp& warp, const Lane& lane, const Op& op, unsigned index) const;
  std::uint64_t uniform_at(const Warp& warp, const Op& op, unsigned at, bool is_wide) const;

  // ---- memory ----
  void atomic(Warp& warp, Lane& lane, const Op& op);
  std::uint64_t address(const Warp& warp, const Lane& lane, const sass::MemoryOperand& operand) const;
  std::uint32_t load_word(Lane& lane, sass::Space space, std::uint64_t address);
  void store_word(Lane& lane, sass::Space space, std::uint64_t address, std::uint32_t value, std::uint32_t mask);
  void move_piece(Lane& lane, sass::Space to_space, std::uint64_t to, sass::Space from_space, std::uint64_t from,
                  bool adds);
  sass::Space space_of(sass::Space space, std::uint64_t& address) const;
  void note(sass::Space space, std::uint64_t address, std::uint32_t bytes, bool reads, bool writes,
            const std::array<std::uint32_t, 4>& stored = {});

  const Program& program_;
  const Launch& launch_;
  Memory& memory_;
  Seen seen_;
  std::vector<std::uint8_t> bank0_;
  std::vector<Warp> warps_;
  std::vector<std::uint32_t> shared_;
  std::uint32_t block_ = 0, at_ = 0, clock_ = 0;
  std::uint64_t steps_ = 0, forced_ = 0;
};

}  // namespace nimble::code::emulator
