#include "tests/sass/emulator/machine.h"

#include <bit>
#include <stdexcept>

namespace nimble::code::emulator {
namespace {

constexpr std::uint32_t kLocalBytes = 1u << 13, kSharedBytes = 1u << 16;
constexpr unsigned kBraUniform = 0x1547, kBmovFrom = 0x355;
constexpr std::uint32_t kNone = 0xffffffffu;

// Where in bank 0 the driver says what. Measured: what kernels read that ask for each.
struct Places {
  unsigned threads, blocks, stack, local, params, shared;
};
constexpr unsigned kUnused = 0xffff;
Places places_of(unsigned arch) {
  if (arch >= 100) return {0x360, 0x370, 0x37c, 0x2f8, 0x348, kUnused};
  if (arch >= 90) return {0x0, 0xc, 0x28, 0x20, 0x198, kUnused};
  return {0x0, 0xc, 0x28, 0x20, kUnused, 0x18};
}

struct GivenUp : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

Machine::Machine(const Program& program, const Launch& launch, Memory& memory, Seen seen)
    : program_(program), launch_(launch), memory_(memory), seen_(std::move(seen)) {
  bank0_.resize(program.params_at + program.param_bytes + 64);
  const auto put = [&](unsigned at, std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; at != kUnused && i < bytes && at + i < bank0_.size(); ++i)
      bank0_[at + i] = static_cast<std::uint8_t>(value >> 8 * i);
  };
  const Places places = places_of(program.arch);
  for (unsigned i = 0; i < 3; ++i) {
    put(places.threads + 4 * i, i == 0 ? launch.threads : 1, 4);
    put(places.blocks + 4 * i, i == 0 ? launch.blocks : 1, 4);
  }
  put(places.stack, kLocalBytes - 64, 4);
  put(places.local, kLocalWindow, 8);
  put(places.params, kParamWindow, 8);
  put(places.shared, kSharedWindow, 8);
  for (std::size_t i = 0; i < launch.params.size(); ++i)
    put(static_cast<unsigned>(program.params_at + i), launch.params[i], 1);
}

void Machine::give_up(const std::string& why) const { throw GivenUp(why); }

std::string Machine::run() {
  try {
    for (block_ = 0; block_ < launch_.blocks; ++block_) {
      begin_block();
      for (bool any = true; any;) {
        any = false;
        for (Warp& warp : warps_)
          while (step(warp)) any = true;
        any |= release_barrier();
      }
    }
  } catch (const GivenUp& why) {
    return why.what();
  }
  return {};
}

void Machine::begin_block() {
  warps_.assign((launch_.threads + kLanes - 1) / kLanes, {});
  shared_.assign(kSharedBytes / 4, 0);
  std::uint32_t thread = 0;
  for (Warp& warp : warps_) {
    for (Lane& lane : warp.lanes) {
      if (thread == launch_.threads) break;
      // What lies in registers at first is anything.
      for (std::uint32_t i = 0; i < lane.r.size(); ++i) lane.r[i] = 0x5eed0000u + i;
      lane.local.assign(kLocalBytes / 4, 0x10ca1u);
      lane.thread = thread++;
      lane.pc = program_.entry;
      lane.state = State::runs;
    }
  }
}

// Those come first whose place in the code is lowest: so threads that have parted meet again.
bool Machine::step(Warp& warp) {
  std::uint32_t lowest = kNone;
  bool waits = false;
  for (const Lane& lane : warp.lanes) {
    if (lane.state == State::runs) lowest = std::min(lowest, lane.pc);
    waits |= lane.state == State::waits;
  }
  if (lowest == kNone && waits) {
    // They wait for threads that are at a barrier, or elsewhere. What the hardware would do is not known here.
    ++forced_;
    for (Lane& lane : warp.lanes)
      if (lane.state == State::waits) lowest = std::min(lowest, lane.pc);
    for (Lane& lane : warp.lanes)
      if (lane.state == State::waits && lane.pc == lowest) lane.state = State::runs;
  }
  if (lowest == kNone) return false;
  if (lowest >= program_.ops.size()) give_up("it has left its code");
  Mask active = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i)
    if (warp.lanes[i].state == State::runs && warp.lanes[i].pc == lowest) active |= 1u << i;
  if (++steps_ > launch_.most_steps) give_up("it takes too long");
  at_ = lowest;
  execute(warp, active);
  return true;
}

Machine::Mask Machine::those_that_do(const Warp& warp, const Op& op, Mask active) const {
  const sass::Guard& guard = op.instruction.guard;
  if (guard.when == sass::Guard::When::always) return active;
  if (guard.when == sass::Guard::When::never) return 0;
  const bool wanted = guard.when == sass::Guard::When::if_true;
  Mask all = 0;
  for (Mask left = active; left != 0; left &= left - 1) {
    const auto i = static_cast<std::uint32_t>(std::countr_zero(left));
    const std::uint32_t bits = guard.file == sass::File::up ? warp.up : warp.lanes[i].p;
    if (((bits >> guard.predicate & 1) != 0) == wanted) all |= 1u << i;
  }
  return all;
}

void Machine::execute(Warp& warp, Mask active) {
  const Op& op = program_.ops[at_];
  const Mask doing = those_that_do(warp, op, active);
  for (Mask left = active; left != 0; left &= left - 1) ++warp.lanes[std::countr_zero(left)].pc;
  if (doing == 0) return;
  switch (op.what) {
    case Do::unknown:
      return give_up(std::string("it has ") + (op.instruction.name[0] != 0 ? op.instruction.name : "an unknown op"));
    case Do::nothing:
      return;
    case Do::bra:
    case Do::brx:
    case Do::bra_div:
    case Do::call:
    case Do::ret:
    case Do::exit:
    case Do::bssy:
    case Do::bsync:
    case Do::brk:
    case Do::bmov:
    case Do::bar:
      control(warp, op, doing);
      return wake(warp);
    case Do::load:
    case Do::store:
    case Do::atomic:
    case Do::ldc:
    case Do::ldgsts:
    case Do::qspc:
      return memory(warp, op, doing);
    case Do::ldsm:
    case Do::stsm:
    case Do::syncs:
    case Do::bulk:
    case Do::tensor:
    case Do::work:
      return async(warp, op, doing);
    case Do::shfl:
    case Do::vote:
    case Do::match:
    case Do::redux:
    case Do::r2ur:
    case Do::elect:
      return among_lanes(warp, op, doing);
    default:
      break;
  }
  for (Mask left = doing; left != 0; left &= left - 1) {
    compute(warp, warp.lanes[std::countr_zero(left)], op);
    if (op.once) break;
  }
}

void Machine::compute(Warp& warp, Lane& lane, const Op& op) {
  if (integers(warp, lane, op) || bits(warp, lane, op) || floats(warp, lane, op) || doubles(warp, lane, op)) return;
  // Some number, always the same of the same.
  std::uint64_t value = static_cast<std::uint64_t>(at_);
  for (const Source& source : {op.a, op.b, op.c}) value = mixed(value + raw(warp, lane, source, op));
  for (unsigned i = 0; i < op.to_count; ++i) put(warp, lane, op, static_cast<std::uint32_t>(value % 64), i);
}

void Machine::control(Warp& warp, const Op& op, Mask doing) {
  const auto goes_to = [&](Lane& lane, std::int64_t byte) {
    if (byte < 0 || byte % 16 != 0) give_up("it branches to nowhere");
    lane.pc = static_cast<std::uint32_t>(byte / 16);
  };
  const auto target = std::int64_t{at_} * 16 + op.instruction.target.value_or(0);
  for (Mask left = doing; left != 0; left &= left - 1) {
    const auto i = static_cast<std::uint32_t>(std::countr_zero(left));
    Lane& lane = warp.lanes[i];
    if (op.what != Do::bmov && op.what != Do::bar && !holds(warp, lane, op.p87)) continue;
    switch (op.what) {
      case Do::bra:
        if (op.instruction.opcode == kBraUniform &&
            !holds(warp, lane, {true, op.word.bit(27) != 0, static_cast<std::uint8_t>(op.word.bits(24, 3))}))
          break;
        goes_to(lane, target);
        break;
      case Do::bra_div:
        // Where not all of these threads are together; beyond, each of what they do together names who does it.
        if (raw(warp, lane, op.a, op) != doing) goes_to(lane, target);
        break;
      case Do::brx:
      case Do::ret: {
        const bool is_absolute = op.what == Do::ret && op.word.bit(85) != 0;
        const std::uint64_t from = raw64(warp, lane, op.a, op);
        // The constant of a RET.ABS is no distance from the instruction after it.
        const std::int64_t constant = op.instruction.target.value_or(0) - 16;
        goes_to(lane, is_absolute ? static_cast<std::int64_t>(from - kCodeWindow) + constant
                                  : target + static_cast<std::int64_t>(from));
        break;
      }
      case Do::call:
        if (op.a.kind != Source::Kind::zero) give_up("it calls through a register");
        goes_to(lane, target);
        break;
      case Do::exit:
        lane.state = State::over;
        break;
      case Do::bssy:
        lane.meeting[op.word.bits(16, 4)] = doing;
        break;
      case Do::bsync:
        lane.state = State::waits;
        lane.waits_at = static_cast<std::uint8_t>(op.word.bits(16, 4));
        break;
      case Do::brk: {
        const auto barrier = op.word.bits(16, 4);
        for (Mask others = lane.meeting[barrier]; others != 0; others &= others - 1)
          warp.lanes[std::countr_zero(others)].meeting[barrier] &= ~(1u << i);
        break;
      }
      case Do::bmov: {
        const bool is_read = op.instruction.opcode == kBmovFrom;
        std::uint32_t& meeting = lane.meeting[op.word.bits(24, 4)];
        if (is_read) {
          put(warp, lane, op, meeting);
          if (op.word.bit(84) == 0) meeting = 0;
        } else {
          meeting = raw(warp, lane, op.b, op);
        }
        break;
      }
      case Do::bar:
        lane.state = State::at_barrier;
        break;
      default:
        break;
    }
  }
}

// Those that no longer wait for anyone go on.
void Machine::wake(Warp& warp) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Lane& lane : warp.lanes) {
      if (lane.state != State::waits) continue;
      Mask missing = 0;
      for (Mask others = lane.meeting[lane.waits_at]; others != 0; others &= others - 1) {
        const Lane& other = warp.lanes[std::countr_zero(others)];
        const bool is_here = other.state == State::waits && other.pc == lane.pc;
        if (!is_here && other.state != State::over) missing |= 1;
      }
      if (missing != 0) continue;
      const std::uint32_t together = lane.meeting[lane.waits_at], pc = lane.pc;
      lane.state = State::runs;
      for (Mask others = together; others != 0; others &= others - 1) {
        Lane& other = warp.lanes[std::countr_zero(others)];
        if (other.state == State::waits && other.pc == pc) other.state = State::runs;
      }
      changed = true;
    }
  }
}

bool Machine::release_barrier() {
  bool any = false;
  for (Warp& warp : warps_)
    for (Lane& lane : warp.lanes)
      if (lane.state == State::at_barrier) lane.state = State::runs, any = true;
  return any;
}

}  // namespace nimble::code::emulator
