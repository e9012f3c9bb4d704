#include "analyzer/pointers/parameter_types.h"

namespace nimble::analyzer {
namespace {

struct Builtin {
  std::string_view name;
  std::uint32_t size;
  bool may_hold_address;  // wide enough, and an integer
  bool has_fraction = false;
};

// Builtin types as the Itanium demangler spells them, and classes that are numbers by another name.
constexpr Builtin kNumbers[] = {
    {"bool", 1, false},
    {"char", 1, false},
    {"signed char", 1, false},
    {"unsigned char", 1, false},
    {"short", 2, false},
    {"unsigned short", 2, false},
    {"int", 4, false},
    {"unsigned int", 4, false},
    {"long", 8, true},
    {"unsigned long", 8, true},
    {"long long", 8, true},
    {"unsigned long long", 8, true},
    {"__int128", 16, true},
    {"unsigned __int128", 16, true},
    {"float", 4, false, true},
    {"double", 8, false, true},
    {"wchar_t", 4, false},
    {"char8_t", 1, false},
    {"char16_t", 2, false},
    {"char32_t", 4, false},
    {"_Float16", 2, false, true},
    {"__half", 2, false, true},
    {"__half2", 4, false, true},
    {"__nv_bfloat16", 2, false, true},
    {"__nv_bfloat162", 4, false, true},
    {"__nv_fp8_e4m3", 1, false, true},
    {"__nv_fp8_e5m2", 1, false, true},
    {"c10::Half", 2, false, true},
    {"c10::BFloat16", 2, false, true},
    {"c10::Float8_e4m3fn", 1, false, true},
    {"c10::Float8_e5m2", 1, false, true},
    {"c10::complex<float>", 8, false, true},
    {"c10::complex<double>", 16, false, true},
    {"char2", 2, false},
    {"char4", 4, false},
    {"uchar2", 2, false},
    {"uchar4", 4, false},
    {"short2", 4, false},
    {"short4", 8, false},
    {"ushort2", 4, false},
    {"ushort4", 8, false},
    {"int2", 8, false},
    {"int3", 12, false},
    {"int4", 16, false},
    {"uint2", 8, false},
    {"uint3", 12, false},
    {"uint4", 16, false},
    {"dim3", 12, false},
    {"float2", 8, false},
    {"float3", 12, false},
    {"float4", 16, false},
    {"double2", 16, false},
    {"double4", 32, false},
};

const Builtin* number(std::string_view type) {
  for (const Builtin& builtin : kNumbers)
    if (builtin.name == type) return &builtin;
  return nullptr;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

bool drop_suffix(std::string_view& text, std::string_view suffix) {
  if (text.size() < suffix.size() || text.substr(text.size() - suffix.size()) != suffix) return false;
  text = trimmed(text.substr(0, text.size() - suffix.size()));
  return true;
}

}  // namespace

// A scanner: a case for each kind of character.
std::optional<std::vector<std::string>> parameter_types(std::string_view name) {
  name = trimmed(name);
  while (!name.empty() && name.back() == ']') {  // "[clone .constprop.0]"
    std::size_t open = name.rfind(" [");
    if (open == std::string_view::npos) return std::nullopt;
    name = trimmed(name.substr(0, open));
  }
  if (name.empty() || name.back() != ')') return std::nullopt;
  std::size_t begin = name.size();
  for (int depth = 0; begin-- > 0;) {
    if (name[begin] == ')') ++depth;
    if (name[begin] == '(' && --depth == 0) break;
  }
  if (begin == std::string_view::npos || begin == 0) return std::nullopt;
  std::string_view list = name.substr(begin + 1, name.size() - begin - 2);

  std::vector<std::string> types;
  if (trimmed(list).empty() || trimmed(list) == "void") return types;
  std::size_t from = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      std::string_view type = trimmed(list.substr(from, i - from));
      if (type.empty()) return std::nullopt;
      types.emplace_back(type);
      from = i + 1;
      continue;
    }
    char c = list[i];
    if (c == '(' || c == '<' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == '>' || c == ']' || c == '}') --depth;
    if (depth < 0) return std::nullopt;  // an operator among template arguments: not guessed at
  }
  if (depth != 0) return std::nullopt;
  return types;
}

namespace {

// "std::array<char*, 3ul>" and PyTorch's equivalent: the pointers in it.
std::string_view element_of_array(std::string_view type) {
  for (const std::string_view name : {"std::array<", "at::detail::Array<"}) {
    if (type.substr(0, name.size()) != name || type.back() != '>') continue;
    const std::string_view inside = type.substr(name.size(), type.size() - name.size() - 1);
    const std::size_t comma = inside.rfind(',');
    return comma == std::string_view::npos ? std::string_view{} : trimmed(inside.substr(0, comma));
  }
  return {};
}

ParamType classify_class(std::string_view type) {
  ParamType result{ParamKind::aggregate, 0, ""};
  // A tensor map only leads to the tensor, from which kernels move whole boxes.
  if (type == "CUtensorMap_st" || type == "CUtensorMap") {
    result.array_of_numbers = true;
    result.pointee = Pointee::integers;
    return result;
  }
  // cuDNN's descriptor of a tensor: type, sizes and strides; those of dimensions that do not exist are never set. Of
  // its 104 bytes the 1348 kernels of cuDNN 9 (sm_90) that take one read only these.
  if (type == "cudnnTensorStruct") return {ParamKind::value, 0, ""};
  const std::string_view element = element_of_array(type);
  if (element.empty() || element.back() != '*') return result;
  const ParamType pointer = classify(element);
  result.array_of_numbers = pointer.kind == ParamKind::reads || pointer.kind == ParamKind::writes;
  if (result.array_of_numbers) result.pointee = pointer.pointee;
  return result;
}

// A pointer to pointers to pointers may lead anywhere, whatever follows.
constexpr int kMostPointers = 2;

// What so many levels of pointers lead to.
// A case for each form that a type may take, in the order in which they exclude each other.
ParamType classify_within(std::string_view type, int pointers) {
  type = trimmed(type);
  while (drop_suffix(type, " const") || drop_suffix(type, "__restrict__") || drop_suffix(type, "__restrict") ||
         drop_suffix(type, " volatile")) {
  }
  if (type.empty() || type.find("...") != std::string_view::npos) return {ParamKind::unknown, 0, "takes any arguments"};
  if (type.back() == '&') return {ParamKind::unknown, 8, "takes a reference"};
  if (type.back() == ')' || type.back() == ']')
    return {ParamKind::unknown, 0, "takes a pointer to a function or an array"};
  if (type.back() != '*') {
    const Builtin* builtin = number(type);
    if (builtin != nullptr) return {ParamKind::value, builtin->size, ""};
    return classify_class(type);
  }
  drop_suffix(type, "*");
  if (!type.empty() && type.back() == ':') return {ParamKind::unknown, 0, "takes a pointer to a member"};
  bool is_const = false, is_volatile = false;
  for (bool more = true; more;) {
    more = false;
    if (drop_suffix(type, " const")) more = is_const = true;
    if (drop_suffix(type, " volatile")) more = is_volatile = true;
  }
  if (is_volatile) return {ParamKind::unknown, 8, "takes a pointer to volatile memory"};
  auto any = [&](const char* why) {
    ParamType result{ParamKind::any, 8, why};
    result.is_const = is_const;
    return result;
  };
  if (type == "void") return any("takes a pointer to void, which may lead to more pointers");
  if (!type.empty() && type.back() == '*') {
    const ParamType inner = pointers < kMostPointers ? classify_within(type, pointers + 1) : ParamType{};
    if (inner.kind != ParamKind::reads && inner.kind != ParamKind::writes)
      return any("takes a pointer to pointers, which may lead to more pointers");
    ParamType result{ParamKind::table, 8, "takes a pointer to pointers"};
    result.is_const = is_const;
    result.reads_pointees = inner.kind == ParamKind::reads;
    result.pointee = inner.pointee;
    return result;
  }
  if (!type.empty() && (type.back() == '&' || type.back() == ')' || type.back() == ']'))
    return {ParamKind::unknown, 8, "takes a pointer to pointers"};
  const Builtin* builtin = number(type);
  if (builtin == nullptr) return any("takes a pointer to a class, which may hold more pointers");
  if (builtin->may_hold_address) return any("takes a pointer to 8-byte integers, which may be addresses");
  ParamType result{is_const ? ParamKind::reads : ParamKind::writes, 8, ""};
  result.pointee = builtin->has_fraction ? Pointee::fractions : Pointee::integers;
  return result;
}

}  // namespace

ParamType classify(std::string_view type) { return classify_within(type, 0); }

}  // namespace nimble::analyzer
