#include "analyzer/kernel_code/sass_flow/contents_flow.h"

#include <algorithm>
#include <array>

#include "analyzer/kernel_code/sass_code/bank0.h"
#include "analyzer/kernel_code/sass_flow/transfer_functions.h"

namespace nimble::code::sass {
namespace {

constexpr std::uint64_t kMostWork = std::uint64_t{1} << 23;  // instructions looked at
constexpr std::size_t kMostRoots = std::size_t{1} << 23;     // in all sets together
constexpr unsigned kSizeBits = 3, kSizeAt = 73;              // how much a load takes

}  // namespace

ContentsFlow::ContentsFlow(const Kernel& kernel, const ControlFlow& flow, const Values& values)
    : kernel_(kernel),
      flow_(flow),
      values_(values),
      places_(kernel, flow, values),
      contents_((kernel.param_bytes + 7) / 8),
      state_(values.all().size()),
      readers_(values.all().size()),
      choices_(values.all().size()) {}

// ---- to the end ----

// What is looked at first goes furthest: in the order of the text.
void ContentsFlow::find_order() {
  const auto first_value = static_cast<std::uint32_t>(flow_.instructions.size());
  std::vector<std::pair<std::uint64_t, std::uint32_t>> nodes;
  for (const std::uint32_t at : values_.order()) nodes.emplace_back(std::uint64_t{at} * 3 + 1, at);
  for (ValueId value = 0; value < values_.all().size(); ++value) {
    const Value& each = values_.all()[value];
    // A choice stands before the instruction that is named, or is of what it writes, as a value is.
    const bool is_before = each.kind == Value::Kind::choice && each.predicate == kNoValue;
    if (!choices_[value].empty())
      nodes.emplace_back(std::uint64_t{each.instruction} * 3 + (is_before ? 0 : 2), first_value + value);
  }
  std::sort(nodes.begin(), nodes.end());
  place_.assign(first_value + values_.all().size(), 0);
  for (const auto& [key, node] : nodes) {
    place_[node] = static_cast<std::uint32_t>(order_.size());
    order_.push_back(node);
  }
}

void ContentsFlow::enqueue(std::uint32_t node) { queue_.insert(place_[node]); }

void ContentsFlow::find_users() {
  for (const std::uint32_t at : values_.order()) {
    for (const ValueId value : values_.read(at)) readers_[value].push_back(at);
    if (flow_.instructions[at].what == Class::barrier_object) shared_readers_.push_back(at);
    for (const MemoryOperand& memory : flow_.instructions[at].memory) {
      if (!memory.reads) continue;
      const bool is_shared = memory.space == Space::shared || memory.space == Space::cluster;
      if (is_shared || memory.space == Space::generic) shared_readers_.push_back(at);
      if (memory.space == Space::local || memory.space == Space::generic) local_readers_.push_back(at);
    }
  }
  for (ValueId value = 0; value < values_.all().size(); ++value)
    for (const ValueId from : values_.choices(value)) choices_[from].push_back(value);
  for (auto* const lists : {&readers_, &choices_}) {
    for (auto& list : *lists) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }
}

bool ContentsFlow::run() {
  find_users();
  find_order();
  const auto first_value = static_cast<std::uint32_t>(flow_.instructions.size());
  for (ValueId value = 0; value < values_.all().size(); ++value)
    if (values_.all()[value].kind == Value::Kind::initial)
      state_[value] = contents_.either_half(contents_.special(kRootOfNothing));
  for (std::uint32_t place = 0; place < order_.size(); ++place) queue_.insert(queue_.end(), place);
  std::uint64_t work = 0;
  // Round after round, so that what goes back waits for what goes on.
  for (auto next = queue_.begin(); !queue_.empty(); ++work) {
    if (work > kMostWork || contents_.sets().size() > kMostRoots) return false;
    if (next == queue_.end()) next = queue_.begin();
    const std::uint32_t place = *next, node = order_[place];
    queue_.erase(next);
    node < first_value ? apply(node) : pass_on(node - first_value);
    next = queue_.upper_bound(place);
  }
  return true;
}

void ContentsFlow::join(ValueId value, const Content& with) {
  const Content now = contents_.either(state_[value], with);
  if (now == state_[value]) return;
  state_[value] = now;
  for (const std::uint32_t reader : readers_[value]) enqueue(reader);
  if (!choices_[value].empty()) enqueue(static_cast<std::uint32_t>(flow_.instructions.size()) + value);
}

void ContentsFlow::join_memory(Content& place, const Content& with, std::vector<std::uint32_t>& readers) {
  const Content now = contents_.either(place, with);
  if (now == place) return;
  place = now;
  for (const std::uint32_t reader : readers) enqueue(reader);
}

void ContentsFlow::pass_on(ValueId value) {
  for (const ValueId choice : choices_[value]) join(choice, state_[value]);
}

void ContentsFlow::apply(std::uint32_t at) {
  const Instruction& instruction = flow_.instructions[at];
  if (instruction.guard.when == Guard::When::never) return;
  for (const MemoryOperand& memory : instruction.memory)
    if (memory.writes) store(at, memory, stored(at));
  if (instruction.what == Class::barrier_object) exchange(at);
  const auto written = values_.written(at);
  // Predicates hold no address: nothing is said of them.
  std::size_t registers = 0;
  for (const Registers& each : instruction.written)
    if (each.file == File::r || each.file == File::ur) registers += each.count;
  const std::vector<Content> results = this->results(at, static_cast<unsigned>(registers));
  std::size_t next = 0, value = 0;
  for (const Registers& each : instruction.written) {
    const bool is_predicate = each.file == File::p || each.file == File::up;
    for (unsigned i = 0; i < each.count; ++i, ++value) join(written[value], is_predicate ? kNumber : results[next++]);
  }
}

// ---- operands ----

Content ContentsFlow::of_registers(std::uint32_t at, const Registers& registers, unsigned index) const {
  const auto values = values_.read(at, registers);
  return index < values.size() ? state_[values[index]] : kZero;
}

Content ContentsFlow::operand(std::uint32_t at, unsigned bit, unsigned index) const {
  for (const Registers& registers : flow_.instructions[at].read)
    if (registers.at == bit && (registers.file == File::r || registers.file == File::ur))
      return of_registers(at, registers, index);
  return kZero;
}

ContentsFlow::Address ContentsFlow::address(std::uint32_t at, const MemoryOperand& operand) {
  Address address{kZero, kZero};
  for (const auto& registers : {operand.base, operand.uniform}) {
    if (!registers) continue;
    address.low = contents_.sum(address.low, of_registers(at, *registers, 0));
    if (registers->count > 1) address.high = contents_.sum(address.high, of_registers(at, *registers, 1));
  }
  return address;
}

Content ContentsFlow::stored(std::uint32_t at) {
  const Instruction& instruction = flow_.instructions[at];
  if (instruction.what == Class::work_id) return kNumber;
  // What is copied from memory to memory.
  if (instruction.what == Class::async_copy) return contents_.either_half(contents_.special(kRootOfMemory));
  if (instruction.what == Class::bulk_copy || instruction.what == Class::tensor_map)
    return contents_.either(shared_, contents_.either_half(contents_.special(kRootOfMemory)));
  Content all{};
  bool any = false;
  for (const Registers& registers : instruction.read) {
    if (registers.file != File::r && registers.file != File::ur) continue;
    const bool is_address = std::any_of(instruction.memory.begin(), instruction.memory.end(), [&](const auto& memory) {
      return (memory.base && *memory.base == registers) || (memory.uniform && *memory.uniform == registers);
    });
    // Uniform registers there are an address, or tell of one.
    if (is_address || registers.at == kAtA || (registers.file == File::ur && registers.at == kAtC)) continue;
    for (unsigned i = 0; i < registers.count; ++i) all = contents_.either(all, of_registers(at, registers, i));
    any = true;
  }
  return any ? all : kZero;
}

// ---- constants ----

Content ContentsFlow::parameter(std::int64_t offset, unsigned bytes) {
  const auto word = static_cast<Root>(offset / 8);
  for (const KernelParam& param : kernel_.params)
    if (offset >= param.offset && offset < std::int64_t{param.offset} + param.bytes && param.bytes < 8)
      return contents_.part(word);
  if (bytes < 4 || offset % 4 != 0) return contents_.part(word);
  return offset % 8 == 0 ? contents_.low(word) : contents_.high(word);
}

// At an unknown offset: any word of a parameter that is large enough for an address.
Content ContentsFlow::any_parameter(unsigned bytes, unsigned index) {
  std::vector<Root> words;
  for (const KernelParam& param : kernel_.params)
    for (std::uint32_t at = (param.offset + 7) / 8 * 8; param.bytes >= 8 && at < param.offset + param.bytes; at += 8)
      words.push_back(at / 8);
  const RootSet set = contents_.sets().of(std::move(words));
  if (bytes < 4) return {kNoRoots, kNoRoots, set, true};
  const bool is_number = set == kNoRoots;
  if (bytes == 4) return {set, set, kNoRoots, is_number};
  return index % 2 == 0 ? Content{set, kNoRoots, kNoRoots, is_number} : Content{kNoRoots, set, kNoRoots, is_number};
}

Content ContentsFlow::symbol(const SymbolAt& symbol, unsigned index) {
  Root root = contents_.special(kRootOfUnknown);
  if (symbol.kind == SymbolAt::Kind::variable) root = contents_.variable(symbol.name);
  if (symbol.kind == SymbolAt::Kind::function || symbol.kind == SymbolAt::Kind::outside)
    root = contents_.special(kRootOfCode);
  return index == 0 ? contents_.low(root) : contents_.high(root);
}

Content ContentsFlow::constant(std::uint32_t at, unsigned index) {
  const Instruction& instruction = flow_.instructions[at];
  if (!instruction.constant) return kNumber;
  const ConstantOperand& constant = *instruction.constant;
  constexpr std::array<unsigned, 8> kBytes{1, 1, 2, 2, 4, 8, 16, 16};
  const bool is_load = instruction.what == Class::constant_load;
  const unsigned bytes = is_load ? kBytes[flow_.word(at).bits(kSizeAt, kSizeBits)] : constant.bytes;
  const std::int64_t offset = std::int64_t{constant.offset} + std::int64_t{4} * index;
  const Bank0 places = bank0_of(kernel_.arch);
  switch (constant.bank) {
    case 0:
      if (constant.index) {
        const bool is_inside = constant.offset >= static_cast<std::int64_t>(kernel_.params_at) &&
                               constant.offset < std::int64_t{kernel_.params_at} + kernel_.param_bytes;
        // Else it may be the driver's: where the grid's barrier is, say.
        const Content any = any_parameter(bytes, index);
        return is_inside ? any : contents_.either(any, contents_.either_half(contents_.special(kRootOfUnknown)));
      }
      if (offset >= kernel_.params_at && offset < std::int64_t{kernel_.params_at} + kernel_.param_bytes)
        return parameter(offset - kernel_.params_at, bytes);
      for (const auto& [place, root] : {std::pair{places.local, kRootOfLocal}, std::pair{places.params, kRootOfParams},
                                        std::pair{places.bank, kRootOfParams}, std::pair{places.shared, kRootOfShared}})
        if (place != kNowhere && (offset == place || offset == place + 4))
          return offset == place ? contents_.low(contents_.special(root)) : contents_.high(contents_.special(root));
      return kNumber;
    case 2:
      return kNumber;
    case 3:
      return bytes < 4 ? contents_.part(contents_.special(kRootOfMemory))
                       : contents_.either_half(contents_.special(kRootOfMemory));
    case 4: {
      if (constant.index || bytes < 4) return contents_.either_half(contents_.special(kRootOfUnknown));
      const auto found = kernel_.in_bank4.find(static_cast<std::uint32_t>(offset / 8 * 8));
      if (found == kernel_.in_bank4.end()) return contents_.either_half(contents_.special(kRootOfUnknown));
      return symbol(found->second, static_cast<unsigned>(offset / 4 % 2));
    }
    default:
      return contents_.either_half(contents_.special(kRootOfUnknown));
  }
}

// ---- what instructions make ----

std::vector<Content> ContentsFlow::results(std::uint32_t at, unsigned count) {
  const Instruction& instruction = flow_.instructions[at];
  std::vector<Content> all(count, kNumber);
  switch (instruction.what) {
    case Class::number:
    case Class::integer:
    case Class::predicate:
      if (const auto upper = upper_half(at))
        return std::vector<Content>(count, contents_.high(contents_.special(*upper)));
      all = computed(
          instruction, flow_.word(at), count, contents_,
          [&](unsigned bit, unsigned index) { return operand(at, bit, index); },
          [&](unsigned index) { return constant(at, index); });
      // The loader puts half of a symbol's address where the immediate is.
      if (const auto found = kernel_.in_text.lower_bound(at * static_cast<std::uint32_t>(kInstructionBytes));
          found != kernel_.in_text.end() && found->first / kInstructionBytes == at)
        for (Content& each : all)
          each = contents_.either(each, contents_.either(symbol(found->second, 0), symbol(found->second, 1)));
      return all;
    case Class::constant_load:
      for (unsigned i = 0; i < count; ++i) all[i] = constant(at, i);
      return all;
    case Class::load:
    case Class::atomic:
      return instruction.memory.size() == 1 ? loaded(at, instruction.memory[0], count) : all;
    case Class::barrier_object:
      for (Content& each : all) each = contents_.either(kNumber, shared_);
      return all;
    default:
      return all;
  }
}

bool ContentsFlow::brings(std::uint32_t at, Root root) {
  const auto found = kernel_.in_text.lower_bound(at * static_cast<std::uint32_t>(kInstructionBytes));
  if (found != kernel_.in_text.end() && found->first / kInstructionBytes == at) return true;
  return upper_half(at) || may_come_from(constant(at, 0), root) || may_come_from(constant(at, 1), root);
}

// Of which memory of the kernel's own the instruction gives the upper half of generic addresses.
std::optional<SpecialRoot> ContentsFlow::upper_half(std::uint32_t at) const {
  constexpr unsigned kSpecialAt = 72, kSpecialBits = 8;
  const std::string_view name = flow_.instructions[at].name;
  if (name != "S2R" && name != "S2UR") return std::nullopt;
  const std::uint64_t which = flow_.word(at).bits(kSpecialAt, kSpecialBits);
  if (which == kUpperHalfOfLocal) return kRootOfLocal;
  if (which == kUpperHalfOfShared) return kRootOfShared;
  return std::nullopt;
}

}  // namespace nimble::code::sass
