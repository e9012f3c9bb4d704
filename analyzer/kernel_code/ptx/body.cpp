#include "analyzer/kernel_code/ptx/body.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_map>

#include "analyzer/kernel_code/ptx/lexer.h"

namespace nimble::code {
namespace {

constexpr std::size_t kMostInstructions = 1 << 19, kMostSymbols = 1 << 20, kMostOperands = 1 << 10,
                      kMostElements = 1 << 30;
constexpr int kDeepest = 32;

class Reader {
 public:
  explicit Reader(const PtxFunction& function) : lexer_(function.body) {
    scopes_.emplace_back();
    for (const auto* list : {&function.results, &function.params})
      for (const PtxParam& param : *list) {
        declare(param.name, param.in_register ? PtxSymbol::Kind::reg : PtxSymbol::Kind::param, 64);
        body_.symbols.back().bytes = param.size;
      }
  }

  PtxBody read() {
    while (lexer_.peek() && body_.error.empty()) statement();
    if (body_.error.empty() && scopes_.size() != 1) fail("damaged PTX");
    return std::move(body_);
  }

 private:
  // `.reg .b32 %r<5>` declares %r0 to %r4.
  struct Range {
    std::string_view prefix;
    std::uint64_t count;
    PtxSymbol::Kind kind;
    unsigned bits;
  };
  struct Scope {
    std::unordered_map<std::string_view, std::uint32_t> names;
    std::vector<Range> ranges;
  };

  void fail(std::string_view why, std::string_view what = {}) {
    if (body_.error.empty()) body_.error.append(why).append(what.substr(0, 60));
  }

  std::uint32_t add_symbol(std::string_view name, PtxSymbol::Kind kind, unsigned bits) {
    if (body_.symbols.size() >= kMostSymbols) fail("too large");
    body_.symbols.push_back({name, kind, bits});
    return static_cast<std::uint32_t>(body_.symbols.size() - 1);
  }

  void declare(std::string_view name, PtxSymbol::Kind kind, unsigned bits) {
    const std::uint32_t symbol = add_symbol(name, kind, bits);
    if (!scopes_.back().names.emplace(name, symbol).second) fail("a name that is declared twice: ", name);
  }

  std::uint32_t resolve(std::string_view name) {
    for (std::size_t i = scopes_.size(); i-- > 0;) {
      Scope& scope = scopes_[i];
      if (const auto found = scope.names.find(name); found != scope.names.end()) return found->second;
      if (scope.ranges.empty() || std::isdigit(static_cast<unsigned char>(name.back())) == 0) continue;
      for (const Range& range : scope.ranges) {
        if (!name.starts_with(range.prefix)) continue;
        const std::string_view digits = name.substr(range.prefix.size());
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (error != std::errc{} || end != digits.data() + digits.size() || number >= range.count) continue;
        const std::uint32_t symbol = add_symbol(name, range.kind, range.bits);
        scope.names.emplace(name, symbol);
        return symbol;
      }
    }
    const std::uint32_t symbol = add_symbol(name, PtxSymbol::Kind::outside, 0);
    scopes_.front().names.emplace(name, symbol);
    return symbol;
  }

  void statement() {
    if (lexer_.take("{")) {
      if (scopes_.size() > kDeepest) return fail("damaged PTX");
      scopes_.emplace_back();
      return;
    }
    if (lexer_.take("}")) {
      if (scopes_.size() == 1) return fail("damaged PTX");
      scopes_.pop_back();
      return;
    }
    if (lexer_.take(";")) return;
    std::uint32_t predicate = kNoSymbol;
    bool negated = false;
    if (lexer_.take("@")) {
      negated = lexer_.take("!");
      const PtxToken name = lexer_.take();
      if (name.kind != PtxToken::Kind::word) return fail("damaged PTX");
      predicate = resolve(name.spelled);
    }
    const PtxToken first = lexer_.take();
    if (first.kind != PtxToken::Kind::word) return fail("damaged PTX");
    if (first.spelled[0] == '.') return directive(first.spelled);
    if (lexer_.take(":")) {
      // A label, or the name of a prototype or of a table of labels.
      for (const std::string_view table : {".callprototype", ".branchtargets", ".calltargets"}) {
        if (!lexer_.take(table)) continue;
        body_.jumps = true;
        if (!lexer_.skip_past(";")) fail("damaged PTX");
      }
      body_.labels.push_back({resolve(first.spelled), body_.instructions.size()});
      return;
    }
    instruction(first.spelled, predicate, negated);
  }

  void directive(std::string_view word) {
    if (word == ".loc" || word == ".file") return lexer_.skip_line();
    if (word == ".pragma") {
      if (!lexer_.skip_past(";")) fail("damaged PTX");
      return;
    }
    // Hand-written PTX may omit the space before the type: .reg.b32
    const std::size_t dot = std::min(word.find('.', 1), word.size());
    const std::string_view space = word.substr(0, dot), type = word.substr(dot);
    const unsigned bits = type.empty() ? 0 : ptx_type_bits(type.substr(1));
    if (!type.empty() && bits == 0) return fail("an unknown directive: ", word);
    if (space == ".reg") return variables(PtxSymbol::Kind::reg, bits);
    if (space == ".param") return variables(PtxSymbol::Kind::param, bits);
    if (space == ".local") return variables(PtxSymbol::Kind::local, bits);
    if (space == ".shared") return variables(PtxSymbol::Kind::shared, bits);
    fail("an unknown directive: ", word);
  }

  // `.reg .b32 %r<5>, %q;`, `.local .align 8 .b8 depot[16];`
  void variables(PtxSymbol::Kind kind, unsigned bits) {
    while (lexer_.peek()) {
      const PtxToken token = lexer_.take();
      if (token.is(".align")) {
        lexer_.take();
      } else if (token.kind == PtxToken::Kind::word && token.spelled[0] == '.') {
        bits = std::max(bits, ptx_type_bits(token.spelled.substr(1)));
      } else if (token.kind == PtxToken::Kind::word) {
        const PtxSymbol::Kind own = kind == PtxSymbol::Kind::reg && bits == 1 ? PtxSymbol::Kind::predicate : kind;
        if (lexer_.take("<")) {
          const PtxToken count = lexer_.take();
          std::uint64_t value = 0;
          const char* end = count.spelled.data() + count.spelled.size();
          if (std::from_chars(count.spelled.data(), end, value).ptr != end || !lexer_.take(">"))
            return fail("damaged PTX");
          scopes_.back().ranges.push_back({token.spelled, value, own, bits});
        } else {
          declare(token.spelled, own, bits);
          std::uint64_t count = 1;
          while (lexer_.take("[")) {
            PtxOperand elements;
            if (!read_number(lexer_.take().spelled, false, elements) || !lexer_.take("]")) return fail("damaged PTX");
            count *= std::min<std::uint64_t>(static_cast<std::uint64_t>(elements.value), kMostElements);
            count = std::min<std::uint64_t>(count, kMostElements);
          }
          body_.symbols.back().bytes = count * ((bits + 7) / 8);
        }
        if (lexer_.take(";")) return;
        if (!lexer_.take(",")) return fail("damaged PTX");
      } else {
        return fail("damaged PTX");
      }
    }
    fail("damaged PTX");
  }

  void instruction(std::string_view opcode, std::uint32_t predicate, bool negated) {
    if (body_.instructions.size() >= kMostInstructions) return fail("too large");
    PtxInstruction result;
    result.opcode = opcode;
    result.predicate = predicate;
    result.negated = negated;
    while (lexer_.peek() && !lexer_.take(";")) {
      if (!result.operands.empty() && !lexer_.take(",")) return fail("damaged PTX: ", opcode);
      PtxOperand operand;
      if (!read_operand(operand, 0) || result.operands.size() >= kMostOperands) return fail("damaged PTX: ", opcode);
      result.operands.push_back(std::move(operand));
    }
    body_.instructions.push_back(std::move(result));
  }

  bool read_list(std::vector<PtxOperand>& list, std::string_view end, int depth) {
    while (!lexer_.take(end)) {
      if (!lexer_.peek() || list.size() >= kMostOperands) return false;
      if (!list.empty() && !lexer_.take(",")) return false;
      PtxOperand part;
      if (!read_operand(part, depth + 1)) return false;
      list.push_back(std::move(part));
    }
    return true;
  }

  bool read_operand(PtxOperand& operand, int depth) {
    if (depth > 3) return false;
    lexer_.take("!");
    if (lexer_.take("{")) {
      operand.kind = PtxOperand::Kind::vector;
      return read_list(operand.parts, "}", depth);
    }
    if (lexer_.take("(")) {
      operand.kind = PtxOperand::Kind::list;
      return read_list(operand.parts, ")", depth);
    }
    if (lexer_.take("[")) {
      std::vector<PtxOperand> inside;
      if (!read_list(inside, "]", depth) || inside.empty()) return false;
      operand = inside[0];
      const bool plain = operand.kind == PtxOperand::Kind::symbol || operand.kind == PtxOperand::Kind::number;
      operand.odd |= inside.size() > 1 || !plain;
      operand.kind = PtxOperand::Kind::address;
      return true;
    }
    return read_simple(operand) && (!lexer_.take("|") || read_pair(operand));
  }

  bool read_pair(PtxOperand& first) {
    PtxOperand pair, second;
    if (!read_simple(second)) return false;
    pair.kind = PtxOperand::Kind::vector;
    pair.parts = {first, second};
    first = std::move(pair);
    return true;
  }

  // A name with a number added, or a number.
  bool read_simple(PtxOperand& operand) {
    bool minus = lexer_.take("-");
    const PtxToken token = lexer_.take();
    if (token.kind == PtxToken::Kind::number) {
      operand.kind = PtxOperand::Kind::number;
      return read_number(token.spelled, minus, operand);
    }
    if (token.kind != PtxToken::Kind::word || minus) return false;
    operand.kind = PtxOperand::Kind::symbol;
    operand.symbol = resolve(token.spelled);
    const bool plus = lexer_.take("+");
    minus = plus ? lexer_.take("-") : lexer_.take("-");
    if (!plus && !minus) return true;
    const PtxToken added = lexer_.take();
    return added.kind == PtxToken::Kind::number && read_number(added.spelled, minus, operand);
  }

  static bool read_number(std::string_view text, bool minus, PtxOperand& operand) {
    const bool as_bits =
        text.size() > 2 && text[0] == '0' && std::string_view("fFdD").find(text[1]) != std::string_view::npos;
    if (as_bits || text.find('.') != std::string_view::npos) {
      operand.odd = true;
      return true;
    }
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X")) {
      text.remove_prefix(2);
      base = 16;
    }
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || (end != text.data() + text.size() && *end != 'U')) return false;
    operand.value = static_cast<std::int64_t>(minus ? 0 - value : value);
    return true;
  }

  PtxLexer lexer_;
  PtxBody body_;
  std::vector<Scope> scopes_;
};

}  // namespace

PtxBody read_ptx_body(const PtxFunction& function) { return Reader(function).read(); }

}  // namespace nimble::code
