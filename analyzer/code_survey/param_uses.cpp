#include "analyzer/code_survey/param_uses.h"

#include <algorithm>
#include <map>
#include <utility>

namespace nimble::analyzer {
namespace {

constexpr std::uint32_t kWord = 8;

// "bytes 0-31 and 48-55": words, ascending, in runs.
std::string words_text(const std::vector<std::uint32_t>& at) {
  std::string text = "bytes ";
  for (std::size_t first = 0, last = 0; first < at.size(); first = last + 1) {
    for (last = first; last + 1 < at.size() && at[last + 1] == at[last] + kWord;) ++last;
    if (first != 0) text += last + 1 == at.size() ? " and " : ", ";
    text += std::to_string(at[first]) + "-" + std::to_string(at[last] + kWord - 1);
  }
  return text;
}

std::string conditions_text(const code::PtxConditions& conditions) {
  std::string text;
  for (const code::PtxCondition& each : conditions)
    text += (text.empty() ? ", if " : " and ") + bytes_range(each.at, each.at + each.bytes) +
            (each.bytes == 1 ? " is " : " are ") + (each.equal ? "" : "not ") + std::to_string(each.value);
  return text;
}

// By word.
std::map<std::uint32_t, PieceUse> word_uses(const code::PtxProof& proof) {
  std::map<std::uint32_t, PieceUse> words;
  for (const code::PtxAccess& access : proof.accesses) {
    code::PtxAccess use = access;
    if (access.at.size() == 1) use.at.clear();
    for (const std::uint32_t at : access.at) words[at].uses.push_back(use);
  }
  for (const std::uint32_t at : proof.stored) words[at].stored = true;
  return words;
}

void append(std::vector<PieceUse>& pieces, std::uint32_t begin, std::uint32_t end, const PieceUse& use) {
  if (!pieces.empty() && pieces.back().uses == use.uses && pieces.back().stored == use.stored) {
    pieces.back().end = end;
    return;
  }
  pieces.push_back({begin, end, use.uses, use.stored});
}

}  // namespace

std::vector<ParamUse> param_uses(const code::PtxProof& proof) {
  const std::map<std::uint32_t, PieceUse> words = word_uses(proof);
  std::vector<ParamUse> all;
  for (const code::PtxParam& param : proof.params) {
    ParamUse use{param.offset, param.size, {}};
    const std::uint32_t end = param.offset + param.size;
    for (std::uint32_t at = param.offset; at < end;) {
      const std::uint32_t word = at / kWord * kWord, next = std::min(end, word + kWord);
      const auto found = words.find(word);
      const bool is_whole = at == word && next == word + kWord;
      // That a number is stored, which shares its word with others or is less than one, tells nothing.
      const bool tells = found != words.end() && (is_whole || !found->second.uses.empty());
      append(use.pieces, at, next, tells ? found->second : PieceUse());
      at = next;
    }
    all.push_back(std::move(use));
  }
  if (!proof.params.empty()) return all;
  for (const auto& [at, word] : words) {
    if (!all.empty() && all.back().offset + all.back().size == at)
      all.back().size += kWord;
    else
      all.push_back({at, kWord, {}});
    append(all.back().pieces, at, at + kWord, word);
  }
  return all;
}

std::string bytes_range(std::uint32_t begin, std::uint32_t end) {
  return end == begin + 1 ? "byte " + std::to_string(begin)
                          : "bytes " + std::to_string(begin) + "-" + std::to_string(end - 1);
}

std::string spoken_mode(bool reads, bool writes) {
  return reads && writes ? "read and written" : writes ? "written" : "read";
}

std::string spoken(const PieceUse& piece) {
  std::string text;
  for (const code::PtxAccess& use : piece.uses) {
    if (!text.empty()) text += "; ";
    text += spoken_mode(use.reads, use.writes);
    if (!use.at.empty()) text += " by one of the addresses in " + words_text(use.at);
    text += conditions_text(use.when);
  }
  if (piece.uses.empty()) text = "never an address";
  if (piece.stored) text += "; stored in memory";
  return text;
}

}  // namespace nimble::analyzer
