#include "analyzer/kernel_code/sass/opcode_table.h"

#include <algorithm>
#include <iterator>

namespace nimble::code::sass {
namespace {

// Reads the texts of opcodes.def. A mistake in them ends a test (opcode_table_test.cpp reads all), and gives a row that
// matches no architecture.
class Text {
 public:
  explicit Text(std::string_view text) : left_(text) {}

  bool at_end() {
    while (!left_.empty() && left_.front() == ' ') left_.remove_prefix(1);
    return left_.empty();
  }
  bool take(std::string_view what) {
    if (!left_.starts_with(what)) return false;
    left_.remove_prefix(what.size());
    return true;
  }
  unsigned number() {
    unsigned value = 0;
    bool any = false;
    for (; !left_.empty() && left_.front() >= '0' && left_.front() <= '9'; left_.remove_prefix(1), any = true)
      value = 10 * value + static_cast<unsigned>(left_.front() - '0');
    good_ = good_ && any;
    return value;
  }
  void expect(std::string_view what) { good_ = take(what) && good_; }
  bool good() const { return good_; }

 private:
  std::string_view left_;
  bool good_ = true;
};

constexpr unsigned kFirstArchBit = 128;  // Count::at from here on

Count read_count(Text& text) {
  Count count;
  if (text.take("gmma")) {
    count.gmma = true;
  } else if (text.take("[")) {
    do {
      unsigned at = 0;
      if (text.take("arch>=")) {
        const auto* const arch = std::find(std::begin(kArchs), std::end(kArchs), text.number());
        at = kFirstArchBit + static_cast<unsigned>(arch - std::begin(kArchs));
      } else {
        at = text.number();
      }
      if (count.bits == Count::kMostBits) text.expect("fewer bits");
      if (!text.good()) return count;
      count.at[count.bits++] = static_cast<std::uint8_t>(at);
    } while (text.take(","));
    text.expect("]{");
    count.of.fill(Count::kNotKnown);
    do {
      const unsigned value = text.number();
      text.expect(":");
      const unsigned of = text.number();
      if (value >> count.bits != 0) text.expect("a smaller value");
      if (!text.good()) return count;
      count.of[value] = static_cast<std::int16_t>(of);
    } while (text.take(" "));
    text.expect("}");
  } else {
    count.of[0] = static_cast<std::int16_t>(text.number());
  }
  return count;
}

bool read_fields(std::string_view from, std::vector<Field>& fields) {
  Text text(from);
  while (text.good() && !text.at_end()) {
    Field field;
    field.complement = text.take("~");
    field.file = text.take("UR") ? File::ur : text.take("UP") ? File::up : text.take("R") ? File::r : File::p;
    if (field.file == File::p) text.expect("P");
    text.expect("@");
    if (text.take("all")) {
      field.all = true;
    } else {
      field.at = static_cast<std::uint8_t>(text.number());
      text.expect(":");
      field.count = read_count(text);
    }
    fields.push_back(field);
  }
  return text.good();
}

bool read_archs(std::string_view from, std::uint16_t& archs) {
  Text text(from);
  while (text.good() && !text.at_end()) {
    const unsigned first = text.number(), last = text.take("-") ? text.number() : first;
    for (std::size_t i = 0; i < std::size(kArchs); ++i)
      if (kArchs[i] >= first && kArchs[i] <= last) archs = static_cast<std::uint16_t>(archs | 1u << i);
  }
  return text.good() && archs != 0;
}

Row make_row(std::uint16_t opcode, const char* name, Class what, Space space, Address address, File guard,
             std::string_view archs, std::string_view numbers, std::string_view writes, std::string_view reads) {
  Row row;
  row.opcode = opcode;
  row.name = name;
  row.what = what;
  row.space = space;
  row.address = address;
  row.uniform_guard = guard == File::up;
  row.has_constant = numbers == "c16" || numbers == "c17";
  row.has_immediate = numbers == "i32";
  if (!read_fields(writes, row.writes) || !read_fields(reads, row.reads) || !read_archs(archs, row.archs))
    row.archs = 0;
  return row;
}

// Rows by opcode, and for each of the 2^13 opcodes where its rows begin.
struct Table {
  std::vector<Row> rows;
  std::array<std::uint16_t, (std::size_t{1} << 13) + 1> first{};

  Table() {
#define NIMBLE_SASS(opcode, name, what, space, address, guard, archs, numbers, writes, reads)                     \
  rows.push_back(make_row(opcode, name, Class::what, Space::space, Address::address, File::guard, archs, numbers, \
                          writes, reads));
#include "analyzer/kernel_code/sass/opcodes.def"
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.opcode < b.opcode; });
    std::size_t row = 0;
    for (std::size_t opcode = 0; opcode < first.size(); ++opcode) {
      while (row < rows.size() && rows[row].opcode < opcode) ++row;
      first[opcode] = static_cast<std::uint16_t>(row);
    }
  }
};

const Table& table() {
  static const Table made;
  return made;
}

// The architectures that were measured which stand for this one: itself, or its neighbours in the family.
std::uint16_t archs_for(unsigned arch) {
  const auto* const above = std::lower_bound(std::begin(kArchs), std::end(kArchs), arch);
  if (above == std::end(kArchs)) return 0;
  const auto bit = static_cast<unsigned>(above - std::begin(kArchs));
  if (*above == arch) return static_cast<std::uint16_t>(1u << bit);
  // sm_87 between sm_86 and sm_89; nothing between families.
  if (bit == 0 || kArchs[bit - 1] / 10 != arch / 10 || *above / 10 != arch / 10) return 0;
  return static_cast<std::uint16_t>(3u << (bit - 1));
}

}  // namespace

std::int16_t Count::in(Word word, unsigned arch) const {
  if (gmma) return static_cast<std::int16_t>((word.bits(53, 5) + 1) * (word.bit(75) ? 4 : 2));
  unsigned value = 0;
  for (unsigned i = 0; i < bits; ++i) {
    const unsigned one = at[i] < kFirstArchBit ? word.bit(at[i]) : arch >= kArchs[at[i] - kFirstArchBit];
    value |= one << i;
  }
  return of[value];
}

const Row* find_row(std::uint16_t opcode, unsigned arch) {
  if (opcode >> 13 != 0) return nullptr;
  const std::uint16_t archs = archs_for(arch);
  const Table& all = table();
  for (std::size_t row = all.first[opcode]; row < all.first[opcode + std::size_t{1}]; ++row)
    if (archs != 0 && (all.rows[row].archs & archs) == archs) return &all.rows[row];
  return nullptr;
}

std::span<const Row> all_rows() { return table().rows; }

}  // namespace nimble::code::sass
