#include "tests/sass/check/assemble.h"

#include <cstring>
#include <initializer_list>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/sass/instruction.h"
#include "tests/sass/emulator/memory.h"
#include "tests/sass/emulator/program.h"

namespace nimble::code::oracle {
namespace {

using sass::Word;

constexpr std::size_t kMost = 120;  // instructions
constexpr unsigned kFirstArch = 90;

// Registers: pairs for pointers, numbers, where predicates are kept, the stack, where to return to.
constexpr unsigned kPairs = 6, kFirstPair = 2, kNumbers = 6, kFirstNumber = 20, kKept = 30, kStack = 1, kReturn = 32,
                   kCounter = 34, kPlace = 36, kResult = 38, kNone = 255;
constexpr unsigned kPredicates = 5, kCarry = 6, kTrue = 7;

struct Bits {
  unsigned at, count;
  std::uint64_t value;
};

Word word_of(unsigned opcode, std::initializer_list<Bits> fields) {
  Word word{opcode | std::uint64_t{kTrue} << 12, 0x000fc00000000000};
  for (const Bits& field : fields) {
    for (unsigned i = 0; i < field.count; ++i) {
      std::uint64_t& half = field.at + i < 64 ? word.low : word.high;
      const std::uint64_t bit = std::uint64_t{1} << (field.at + i) % 64;
      half = (half & ~bit) | ((field.value >> i & 1) != 0 ? bit : 0);
    }
  }
  return word;
}

// Under which condition an instruction runs.
struct Guard {
  unsigned predicate = kTrue;
  bool negated = false;
};

class Assembler {
 public:
  Assembler(std::uint32_t params_at, unsigned stack_at, const std::vector<std::uint32_t>& pointers, std::uint64_t seed)
      : params_at_(params_at), stack_at_(stack_at), pointers_(pointers), state_(emulator::mixed(seed)) {}

  std::vector<Word> run() {
    is_absolute_ = below(3) == 0;
    constant(kStack, stack_at_, 4);
    say(word_of(0x810, {{16, 8, kStack},
                        {24, 8, kStack},
                        {32, 32, 0u - 0x80u},
                        {64, 8, kNone},
                        {77, 4, 15},
                        {81, 3, 7},
                        {84, 3, 7},
                        {87, 4, 15}}));
    for (unsigned i = 0; i < kPairs; ++i) load_pointer(pair());
    for (unsigned i = 0; i < kPairs; ++i) constant(kFirstPair + 2 * i, some_pointer(), 5);
    for (unsigned i = 0; i < kNumbers; ++i)
      i == 0 ? say(word_of(0x919, {{16, 8, kFirstNumber}, {72, 8, 0x21}}))
             : constant(kFirstNumber + i, params_at_ + 4 * below(32), 4);
    for (unsigned i = 0; i < kNumbers; ++i) mask(kFirstNumber + i);
    for (unsigned i = 0; i < kPredicates; ++i) compare(i);
    for (unsigned i = 0; i < 4; ++i) store_local();
    const unsigned statements = 12 + below(24);
    for (unsigned i = 0; i < statements && code_.size() + 34 < kMost; ++i) statement();
    if (is_absolute_) call_and_load();
    store();
    exit();
    if (!calls_.empty()) function();
    return std::move(code_);
  }

 private:
  std::uint32_t below(std::size_t most) {
    state_ = emulator::mixed(state_);
    return static_cast<std::uint32_t>((state_ >> 33) % most);
  }
  // The last one is used in one place alone, where there are others.
  unsigned some_pointer() {
    const bool keeps_last = is_absolute_ && pointers_.size() > 1;
    return params_at_ + pointers_[below(pointers_.size() - (keeps_last ? 1 : 0))];
  }
  unsigned pair() { return kFirstPair + 2 * below(kPairs); }
  unsigned number() { return kFirstNumber + below(kNumbers); }
  unsigned predicate() { return below(kPredicates); }

  void say(Word word) { code_.push_back(word); }
  Guard some_guard() { return below(5) < 2 ? Guard{} : Guard{predicate(), below(2) == 0}; }
  void say(Guard guard, Word word) {
    word.low =
        (word.low & ~std::uint64_t{0xf000}) | std::uint64_t{guard.predicate} << 12 | std::uint64_t{guard.negated} << 15;
    code_.push_back(word);
  }

  void constant(unsigned to, unsigned offset, unsigned size, Guard guard = {}) {
    say(guard, word_of(0xb82, {{16, 8, to}, {24, 8, kNone}, {38, 16, offset}, {73, 3, size}}));
  }
  void load_pointer(unsigned to) { constant(to, some_pointer(), 5, some_guard()); }
  void mask(unsigned at) {
    say(word_of(0x812,
                {{16, 8, at}, {24, 8, at}, {32, 32, 7}, {64, 8, kNone}, {72, 8, 0xc0}, {81, 3, 7}, {87, 4, 15}}));
  }
  void move(Guard guard, unsigned to, unsigned from) {
    say(guard, word_of(0x202, {{16, 8, to}, {32, 8, from}, {72, 4, 15}}));
  }

  void compare(unsigned to) {
    // Again and again the same of the same: some of these are equal.
    const Word word = word_of(0x80c, {{24, 8, number()},
                                      {32, 32, below(3) + 2},
                                      {68, 3, 7},
                                      {73, 1, 1},
                                      {76, 3, below(2) == 0 ? 4u : 5u},
                                      {81, 3, to},
                                      {84, 3, 7},
                                      {87, 3, 7}});
    below(4) == 0 ? say(some_guard(), word) : say(word);
  }

  void store() {
    say(some_guard(),
        word_of(0x386, {{24, 8, pair()}, {32, 8, number()}, {40, 24, 4 * below(8)}, {72, 1, 1}, {73, 3, 4}}));
  }
  void store_local() {
    if (below(3) == 0) {
      place();
      say(some_guard(), word_of(0x387, {{24, 8, kPlace}, {32, 8, pair()}, {73, 3, 5}}));
    } else {
      say(some_guard(), word_of(0x387, {{24, 8, kStack}, {32, 8, pair()}, {40, 24, 8 * below(8)}, {73, 3, 5}}));
    }
  }
  // R1 + 8 * a number.
  void place() {
    say(word_of(
        0x211,
        {{16, 8, kPlace}, {24, 8, number()}, {32, 8, kStack}, {64, 8, kNone}, {75, 5, 3}, {81, 3, 7}, {87, 4, 15}}));
  }

  void exit() { say(word_of(0x94d, {{87, 3, 7}})); }

  void statement() {
    switch (below(20)) {
      case 0:
      case 1:
      case 2: {
        const Guard guard = some_guard();
        const unsigned to = pair(), from = pair();
        move(guard, to, from);
        move(guard, to + 1, from + 1);
        return;
      }
      case 3:
        return load_pointer(pair());
      case 4: {
        const Guard guard = some_guard();
        const unsigned to = pair(), a = pair(), b = pair(), by = predicate(), negated = below(2);
        if (to == a || to == b) return;
        for (unsigned half = 0; half < 2; ++half)
          say(guard,
              word_of(0x207,
                      {{16, 8, to + half}, {24, 8, a + half}, {32, 8, b + half}, {87, 3, by}, {90, 1, negated}}));
        return;
      }
      case 5: {
        const unsigned to = pair();
        say(some_guard(),
            word_of(0x825,
                    {{16, 8, to}, {24, 8, number()}, {32, 32, 4}, {64, 8, to}, {73, 1, 1}, {81, 3, 7}, {87, 3, 7}}));
        return;
      }
      case 6: {
        const Guard guard = some_guard();
        const unsigned to = pair(), from = pair();
        say(guard, word_of(0x210, {{16, 8, to},
                                   {24, 8, from},
                                   {32, 8, number()},
                                   {64, 8, kNone},
                                   {77, 4, 15},
                                   {81, 3, kCarry},
                                   {84, 3, 7},
                                   {87, 4, 15}}));
        say(guard, word_of(0x210, {{16, 8, to + 1},
                                   {24, 8, to == from ? to + 1 : from + 1},
                                   {32, 8, kNone},
                                   {64, 8, kNone},
                                   {74, 1, 1},
                                   {77, 4, 15},
                                   {81, 3, 7},
                                   {84, 3, 7},
                                   {87, 3, kCarry}}));
        return;
      }
      case 7:
      case 8:
        return compare(predicate());
      case 9:  // a copy of a predicate
        say(some_guard(),
            word_of(0x81c,
                    {{68, 3, predicate()}, {72, 5, 0x10}, {77, 3, 7}, {81, 3, predicate()}, {84, 3, 7}, {87, 3, 7}}));
        return;
      case 10: {  // one that is kept, and comes back
        const unsigned which = predicate(), to = predicate();
        say(word_of(0x803, {{16, 8, kKept}, {24, 8, kNone}, {32, 32, std::uint64_t{1} << which}}));
        if (below(2) == 0) compare(which);
        if (below(2) == 0)
          say(word_of(0x804, {{24, 8, kKept}, {32, 32, std::uint64_t{1} << which}}));
        else
          say(some_guard(), word_of(0x20c, {{24, 8, kKept},
                                            {32, 8, kNone},
                                            {68, 3, 7},
                                            {73, 1, 1},
                                            {76, 3, 5},
                                            {81, 3, to},
                                            {84, 3, 7},
                                            {87, 3, 7}}));
        return;
      }
      case 11:
        if (below(2) == 0) return store();
        say(some_guard(), word_of(0x381, {{16, 8, number()}, {24, 8, pair()}, {72, 1, 1}, {73, 3, 4}, {81, 3, 7}}));
        return mask(number());
      case 12:
        return store_local();
      case 13:
        if (below(3) == 0) {
          place();
          say(some_guard(), word_of(0x983, {{16, 8, pair()}, {24, 8, kPlace}, {73, 3, 5}}));
        } else {
          say(some_guard(), word_of(0x983, {{16, 8, pair()}, {24, 8, kStack}, {40, 24, 8 * below(8)}, {73, 3, 5}}));
        }
        return;
      case 14: {  // over the next few
        const std::size_t at = code_.size();
        const Guard guard{predicate(), below(2) == 0};
        say({});
        for (unsigned i = 0, count = 1 + below(3); i < count && code_.size() + 35 < kMost; ++i) statement();
        code_[at] = jump(at, code_.size(), guard);
        return;
      }
      case 15: {  // a pointer that is moved under a condition, and used where that or its opposite holds
        const Guard guard{predicate(), below(2) == 0};
        const unsigned to = pair(), from = pair();
        move(guard, to, from);
        move(guard, to + 1, from + 1);
        for (unsigned i = 0, count = below(3); i < count && code_.size() + 40 < kMost; ++i) statement();
        const Guard then{guard.predicate, below(2) == 0};
        const std::size_t at = code_.size();
        const bool leaves = below(2) == 0;
        say(then, word_of(0x94d, {{87, 3, 7}}));
        say(word_of(0x386, {{24, 8, to}, {32, 8, number()}, {72, 1, 1}, {73, 3, 4}}));
        if (!leaves) code_[at] = jump(at, code_.size(), then);
        return;
      }
      case 16: {  // a few times
        if (depth_ > 0 || code_.size() + 60 > kMost) return;
        ++depth_;
        say(word_of(0x802, {{16, 8, kCounter}, {32, 32, below(3)}, {72, 4, 15}}));
        const std::size_t begin = code_.size();
        for (unsigned i = 0, count = 1 + below(4); i < count; ++i) statement();
        say(word_of(0x810, {{16, 8, kCounter},
                            {24, 8, kCounter},
                            {32, 32, 0xffffffff},
                            {64, 8, kNone},
                            {77, 4, 15},
                            {81, 3, 7},
                            {84, 3, 7},
                            {87, 4, 15}}));
        say(word_of(0x80c, {{24, 8, kCounter},
                            {32, 32, 0},
                            {68, 3, 7},
                            {73, 1, 1},
                            {76, 3, 6},
                            {81, 3, kPredicates},
                            {84, 3, 7},
                            {87, 3, 7}}));
        say(branch(0x947, code_.size(), begin, {kPredicates, false}));
        --depth_;
        return;
      }
      case 18:
        if (below(2) == 0)
          say(Guard{predicate(), below(2) == 0}, word_of(0x94d, {{87, 3, 7}}));
        else
          call_and_load();
        return;
      case 17: {  // what two calls write, compared alike
        if (is_function_ || code_.size() + 45 > kMost) return;
        const unsigned to = pair(), from = pair(), first = predicate(), second = predicate();
        const auto compare_result = [&](unsigned to_predicate) {
          say(word_of(0x80c, {{24, 8, kResult},
                              {32, 32, 3},
                              {68, 3, 7},
                              {73, 1, 1},
                              {76, 3, 4},
                              {81, 3, to_predicate},
                              {84, 3, 7},
                              {87, 3, 7}}));
        };
        call();
        compare_result(first);
        move({first, false}, to, from);
        move({first, false}, to + 1, from + 1);
        call();
        compare_result(second);
        say(Guard{second, below(2) == 0}, word_of(0x386, {{24, 8, to}, {32, 8, number()}, {72, 1, 1}, {73, 3, 4}}));
        return;
      }
      default: {  // moved twice under one condition, and what was there where it does not hold
        const Guard guard{predicate(), below(2) == 0};
        const unsigned to = pair();
        for (int i = 0; i < 2; ++i) {
          const unsigned from = pair();
          move(guard, to, from);
          move(guard, to + 1, from + 1);
        }
        say(word_of(0x386, {{24, 8, to}, {32, 8, number()}, {72, 1, 1}, {73, 3, 4}}));
        return;
      }
    }
  }

  // A pointer is another one after the call.
  void call_and_load() {
    const unsigned to = pair();
    if (is_absolute_) constant(to, params_at_ + pointers_.back(), 5);
    call();
    constant(to, some_pointer(), 5);
    say(word_of(0x386, {{24, 8, to}, {32, 8, number()}, {72, 1, 1}, {73, 3, 4}}));
  }

  void call() {
    if (is_absolute_) {
      say(word_of(0x34e, {{16, 8, kReturn}}));
      calls_.push_back(code_.size());
      return say({});
    }
    say(word_of(0x802, {{16, 8, kReturn}, {32, 32, 16 * (code_.size() + 2)}, {72, 4, 15}}));
    calls_.push_back(code_.size());
    say({});
  }

  void function() {
    const std::size_t begin = code_.size();
    for (const std::size_t at : calls_) {
      code_[at] = branch(0x944, at, begin, {});
      code_[at].high |= std::uint64_t{1} << (86 - 64);
    }
    depth_ = 1;
    is_function_ = true;
    // Its result goes round among eight numbers.
    say(word_of(0x810, {{16, 8, kResult},
                        {24, 8, kResult},
                        {32, 32, 3},
                        {64, 8, kNone},
                        {77, 4, 15},
                        {81, 3, 7},
                        {84, 3, 7},
                        {87, 4, 15}}));
    mask(kResult);
    const std::vector<std::size_t> before = calls_;
    for (unsigned i = 0, count = 1 + below(4); i < count && code_.size() + 8 < kMost; ++i) {
      const std::size_t size = code_.size();
      statement();
      if (calls_.size() == before.size()) continue;
      code_.resize(size);  // it calls nothing
      calls_ = before;
    }
    const std::size_t at = code_.size() + (is_absolute_ ? 0 : 1);
    // The address after the call is the LEPC's and two instructions more; or an offset of which the upper half is zero.
    // At times it comes back to a place after that, which nothing may be proven by.
    Word word =
        is_absolute_ ? branch(0x950, at, at + 3 + (below(4) == 0 ? 1 + below(2) : 0), {}) : branch(0x950, at, 0, {});
    if (is_absolute_)
      word.high |= std::uint64_t{1} << (85 - 64);
    else
      say(word_of(0x802, {{16, 8, kReturn + 1}, {72, 4, 15}}));
    word.low |= std::uint64_t{kReturn} << 24;
    word.high |= std::uint64_t{1} << (86 - 64);
    say(word);
  }

  // A branch; or a call that is one, for nothing comes back from where it leads. In a function something does.
  Word jump(std::size_t at, std::size_t to, Guard guard) {
    if (below(is_function_ ? 12 : 3) != 0) return branch(0x947, at, to, guard);
    Word word = branch(0x944, at, to, guard);
    word.high |= std::uint64_t{1} << (86 - 64);
    return word;
  }

  // In units of four bytes from the next instruction on; the low eight bits lie apart.
  static Word branch(unsigned opcode, std::size_t at, std::size_t to, Guard guard) {
    const std::int64_t words = (static_cast<std::int64_t>(to) - static_cast<std::int64_t>(at) - 1) * 4;
    Word word = word_of(
        opcode,
        {{16, 8, static_cast<std::uint64_t>(words)}, {34, 48, static_cast<std::uint64_t>(words >> 8)}, {87, 3, 7}});
    word.low =
        (word.low & ~std::uint64_t{0xf000}) | std::uint64_t{guard.predicate} << 12 | std::uint64_t{guard.negated} << 15;
    return word;
  }

  const std::uint32_t params_at_;
  const unsigned stack_at_;
  const std::vector<std::uint32_t>& pointers_;
  std::uint64_t state_;
  std::vector<Word> code_;
  std::vector<std::size_t> calls_;
  int depth_ = 0;
  bool is_function_ = false;
  bool is_absolute_ = false;  // how its function returns
};

}  // namespace

std::string assembled(const std::string& cubin, std::string_view kernel, const std::vector<std::uint32_t>& pointers,
                      std::uint64_t seed) {
  const Elf elf(cubin);
  if (elf.arch() < kFirstArch || pointers.empty()) return {};
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (!symbol.kernel || symbol.name != kernel || symbol.value != 0) continue;
    const Bytes text = elf.sections()[symbol.section].bytes;
    if (text.size() < (kMost + 8) * sass::kInstructionBytes) return {};
    const unsigned stack_at = elf.arch() >= 100 ? 0x37c : 0x28;
    const std::vector<Word> code =
        Assembler(emulator::load_program(elf, kernel).params_at, stack_at, pointers, seed).run();
    std::string changed = cubin;
    char* const at = changed.data() + (text.data() - cubin.data());
    for (std::size_t i = 0; i < code.size(); ++i)
      std::memcpy(at + i * sass::kInstructionBytes, &code[i], sizeof code[i]);
    return changed;
  }
  return {};
}

}  // namespace nimble::code::oracle
