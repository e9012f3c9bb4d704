#include "analyzer/kernel_code/ptx/module.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "analyzer/kernel_code/ptx/lexer.h"

namespace nimble::code {
namespace {

constexpr std::uint64_t kMostParamBytes = 1 << 16;

std::optional<std::uint64_t> number_of(const PtxToken& token) {
  std::string_view text = token.spelled;
  if (token.kind != PtxToken::Kind::number) return std::nullopt;
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || (end != text.data() + text.size() && *end != 'U')) return std::nullopt;
  return value;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : lexer_(text) {}

  PtxModule read() {
    while (lexer_.peek() && module_.error.empty()) statement();
    for (std::uint32_t i = 0; i < module_.functions.size() && module_.error.empty(); ++i) {
      const PtxFunction& function = module_.functions[i];
      const auto [found, is_new] = module_.function_of.emplace(function.name, i);
      if (is_new || !function.defined) continue;
      if (module_.functions[found->second].defined) fail("two functions of one name");
      found->second = i;  // it was declared before
    }
    for (std::uint32_t i = 0; i < module_.variables.size(); ++i)
      module_.variable_of.emplace(module_.variables[i].name, i);
    return std::move(module_);
  }

 private:
  void fail(std::string_view why) {
    if (module_.error.empty()) module_.error = why;
  }

  void statement() {
    const PtxToken token = lexer_.take();
    const std::string_view word = token.spelled;
    if (word == ".version" || word == ".address_size" || word == ".file" || word == ".loc") return lexer_.skip_line();
    if (word == ".target") return target();
    if (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common" || word == ";") return;
    if (word == ".pragma") {
      if (!lexer_.skip_past(";")) fail("damaged PTX");
      return;
    }
    if (word == ".section") {
      std::string_view ignored;
      lexer_.take();
      if (!lexer_.take("{") || !lexer_.skip_block(ignored)) fail("damaged PTX");
      return;
    }
    if (word == ".entry" || word == ".func") return function(word == ".entry");
    static constexpr std::pair<std::string_view, PtxSpace> kSpaces[] = {
        {".global", PtxSpace::global},     {".const", PtxSpace::constant}, {".shared", PtxSpace::shared},
        {".tex", PtxSpace::texture},       {".texref", PtxSpace::texture}, {".surfref", PtxSpace::texture},
        {".samplerref", PtxSpace::texture}};
    for (const auto& [name, space] : kSpaces)
      if (word == name) return variable(space);
    std::string why("its PTX holds ");
    why.append(word.substr(0, 40));
    fail(why);
  }

  void target() {
    std::string_view name = lexer_.take().spelled;
    lexer_.skip_line();
    for (const std::string_view prefix : {"sm_", "compute_"}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), module_.arch);
      if (error != std::errc{}) break;
      module_.variant = name.substr(static_cast<std::size_t>(end - name.data()));
      return;
    }
    fail("its PTX is for an unknown target");
  }

  // After the space: everything up to the name, which comes before a bracket, an equals sign, a comma or the end.
  void variable(PtxSpace space) {
    std::string_view name;
    bool managed = false;
    while (lexer_.peek()) {
      const PtxToken token = lexer_.take();
      if (token.is(";")) {
        if (name.empty()) return fail("damaged PTX");
        module_.variables.push_back({name, space, managed});
        return;
      }
      std::string_view ignored;
      if (token.is("{") && !lexer_.skip_block(ignored)) return fail("damaged PTX");
      if (token.is("=") || token.is(",")) {
        if (name.empty()) return fail("damaged PTX");
        if (token.is(",")) return fail("its PTX declares several variables at once");
        module_.variables.push_back({name, space, managed});
        if (!skip_initial_value()) fail("damaged PTX");
        return;
      }
      managed |= token.kind == PtxToken::Kind::word && token.spelled == ".attribute";
      // `.attribute(.managed)` and `[4]` contain no name.
      if ((token.is("(") && !lexer_.skip_past(")")) || (token.is("[") && !lexer_.skip_past("]")))
        return fail("damaged PTX");
      if (token.kind == PtxToken::Kind::word && token.spelled[0] != '.') name = token.spelled;
    }
    fail("damaged PTX");
  }

  bool skip_initial_value() {
    while (lexer_.peek()) {
      const PtxToken token = lexer_.take();
      std::string_view ignored;
      if (token.is(";")) return true;
      if (token.is("{") && !lexer_.skip_block(ignored)) return false;
    }
    return false;
  }

  void function(bool entry) {
    PtxFunction result;
    result.entry = entry;
    while (lexer_.peek().is(".attribute")) {
      lexer_.take();
      if (!lexer_.skip_past(")")) return fail("damaged PTX");
    }
    if (lexer_.peek().is("(") && !params(result.results)) return fail("damaged PTX");
    const PtxToken name = lexer_.take();
    if (name.kind != PtxToken::Kind::word || name.spelled[0] == '.') return fail("damaged PTX");
    result.name = name.spelled;
    if (lexer_.peek().is("(") && !params(result.params)) return fail("damaged PTX");
    // Directives on how to compile it come between its parameters and its body.
    while (lexer_.peek() && !lexer_.peek().is("{") && !lexer_.peek().is(";")) lexer_.take();
    if (lexer_.take("{")) {
      if (!lexer_.skip_block(result.body)) return fail("damaged PTX");
      result.defined = true;
    } else if (!lexer_.take(";")) {
      return fail("damaged PTX");
    }
    module_.functions.push_back(std::move(result));
  }

  // `(.param .align 8 .b8 name[24], .param .u64 .ptr .global .align 4 name, ...)`
  // One grammar rule, with its optional parts in the order of the text.
  bool params(std::vector<PtxParam>& list) {
    lexer_.take();
    std::uint64_t offset = 0;
    if (lexer_.take(")")) return true;
    while (lexer_.peek()) {
      PtxParam param;
      std::uint64_t align = 0, type_bytes = 0, count = 1;
      for (bool pointer = false; !lexer_.peek().is(",") && !lexer_.peek().is(")");) {
        const PtxToken token = lexer_.take();
        if (!token) return false;
        if (token.is(".reg")) param.in_register = true;
        if (token.is(".ptr")) pointer = true;
        if (token.is(".align")) {
          const auto value = number_of(lexer_.take());
          if (!value || *value == 0 || *value > 4096) return false;
          if (!pointer) align = *value;  // after .ptr: of what it points to
        } else if (token.is("[")) {
          const auto value = number_of(lexer_.take());
          if (!value || *value > kMostParamBytes || !lexer_.take("]")) return false;
          count = *value;
        } else if (token.kind == PtxToken::Kind::word) {
          if (token.spelled[0] == '.')
            type_bytes = std::max<std::uint64_t>(type_bytes, ptx_type_bits(token.spelled.substr(1)) / 8);
          else
            param.name = token.spelled;
        }
      }
      if (param.name.empty()) return false;
      if (type_bytes == 0 && !param.in_register) return false;
      align = std::max<std::uint64_t>({align, type_bytes, 1});
      offset = (offset + align - 1) / align * align;
      param.offset = static_cast<std::uint32_t>(offset);
      param.size = static_cast<std::uint32_t>(type_bytes * count);
      offset += type_bytes * count;
      if (offset > kMostParamBytes) return false;
      list.push_back(param);
      if (lexer_.take(")")) return true;
      lexer_.take(",");
    }
    return false;
  }

  PtxLexer lexer_;
  PtxModule module_;
};

}  // namespace

const PtxFunction* PtxModule::find(std::string_view name) const {
  const auto found = function_of.find(name);
  return found == function_of.end() ? nullptr : &functions[found->second];
}

unsigned ptx_type_bits(std::string_view type) {
  if (type == "pred") return 1;
  if (type == "f16x2" || type == "bf16x2" || type == "tf32") return 32;
  if (type == "bf16") return 16;
  if (type.size() < 2 || (type[0] != 'b' && type[0] != 'u' && type[0] != 's' && type[0] != 'f')) return 0;
  constexpr std::pair<std::string_view, unsigned> kWidths[] = {
      {"8", 8}, {"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}};
  for (const auto& [text, bits] : kWidths)
    if (type.substr(1) == text) return bits;
  return 0;
}

PtxModule read_ptx(std::string_view text) { return Reader(text.substr(0, text.find('\0'))).read(); }

}  // namespace nimble::code
