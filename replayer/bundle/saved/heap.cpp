#include "replayer/bundle/saved/heap.h"

#include <elf.h>

#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/kernel_code/fatbin.h"
#include "replayer/bundle/process/live_driver.h"

namespace nimble::bundle {

namespace {

using std::string_view;

bool is_of_heap(string_view name) { return name == "malloc" || name == "free"; }

// By the names of an ELF file's symbols: the driver provides the heap's functions under known names.
bool elf_names_heap(string_view elf) {
  using namespace std::string_view_literals;
  return elf.find("\0malloc\0"sv) != string_view::npos || elf.find("\0free\0"sv) != string_view::npos;
}

// ".extern .func (.param .b64 func_retval0) malloc (...)"
bool ptx_declares_heap(string_view ptx) {
  constexpr string_view kSpace = " \t\r\n", kDeclaration = ".extern .func";
  for (std::size_t at = ptx.find(kDeclaration); at != string_view::npos; at = ptx.find(kDeclaration, at)) {
    at = ptx.find_first_not_of(kSpace, at + kDeclaration.size());
    if (at != string_view::npos && ptx[at] == '(') {
      at = ptx.find(')', at);
      if (at != string_view::npos) at = ptx.find_first_not_of(kSpace, at + 1);
    }
    if (at == string_view::npos) return false;
    if (is_of_heap(ptx.substr(at, ptx.find_first_of(" \t\r\n(;", at) - at))) return true;
  }
  return false;
}

}  // namespace

bool uses_heap(string_view image) {
  if (image.starts_with(string_view(ELFMAG, SELFMAG))) return elf_names_heap(image);
  if (code::fatbin_bytes(image) == 0) return ptx_declares_heap(image);
  std::string expanded, why;
  for (const code::FatbinEntry& entry : code::read_fatbin(image).entries) {
    if (entry.kind == code::FatbinEntry::Kind::other || !code::expand(entry, expanded, why)) continue;
    if (entry.kind == code::FatbinEntry::Kind::elf ? elf_names_heap(expanded) : ptx_declares_heap(expanded))
      return true;
  }
  return false;
}

namespace {

// Follows addresses in memory as of before the step.
class Follower {
 public:
  explicit Follower(const BundleFiles& files) : files_(files) {
    const std::vector<BundleObject>& objects = files.bundle().objects;
    for (std::uint32_t i = 0; i < objects.size(); ++i)
      if (objects[i].start) by_address_[objects[i].address] = i;
  }

  // Whether anything reachable from these addresses may hold an address of memory that is not in the bundle.
  bool leads_out(std::vector<std::uint64_t> addresses) {
    std::set<std::uint32_t> seen;
    while (!addresses.empty()) {
      const std::uint32_t object = find(addresses.back());
      addresses.pop_back();
      if (object == kNone || !seen.insert(object).second) continue;
      const BundleObject& facts = files_.bundle().objects[object];
      for (std::size_t i = 0; i < facts.start->size(); ++i) {
        if ((*facts.start)[i] == kNone) continue;
        const std::uint32_t bytes = piece_bytes(facts.size, i);
        files_.read((*facts.start)[i], bytes, piece_.data());
        for (std::uint32_t at = 0; at + 8 <= bytes; at += 8) {
          std::uint64_t word = 0;
          std::memcpy(&word, piece_.data() + at, sizeof word);
          // Words below or above where drivers put memory are mostly numbers.
          if (word < std::uint64_t{1} << 32 || word >= std::uint64_t{1} << 47) continue;
          if (find(word) == kNone) return true;
          addresses.push_back(word);
        }
      }
    }
    return false;
  }

 private:
  std::uint32_t find(std::uint64_t address) const {
    const auto after = by_address_.upper_bound(address);
    if (after == by_address_.begin()) return kNone;
    const std::uint32_t object = std::prev(after)->second;
    return address - std::prev(after)->first < files_.bundle().objects[object].size ? object : kNone;
  }

  const BundleFiles& files_;
  std::map<std::uint64_t, std::uint32_t> by_address_;  // objects older than the step
  std::vector<std::uint8_t> piece_ = std::vector<std::uint8_t>(kBundlePiece);
};

}  // namespace

void check_heap(const BundleFiles& files, const RecordedStep& step) {
  const Bundle& bundle = files.bundle();
  std::vector<std::optional<bool>> known(bundle.images.size());
  Follower follower(files);
  for (std::uint32_t op = 0; op < step.ops(); ++op) {
    const std::uint32_t image = bundle.images_of_ops[op];
    if (step.op(op).kind != CallKind::launch) continue;
    const std::optional<KernelProof>& proof = step.trace().functions[step.op(op).function].proof;
    if (proof && proof->extents.doubts.empty()) continue;
    if (!known[image]) known[image] = uses_heap(files.image(image));
    if (!*known[image]) continue;
    std::vector<std::uint64_t> given;
    for (const analyzer::PointerWord& pointer : step.pointers(op)) given.push_back(step.object(pointer.object).base);
    if (follower.leads_out(std::move(given)))
      throw Refused(step.describe(op) + " may reach an address in the device's heap, which a bundle " +
                    "does not hold: its image calls malloc or free");
  }
}

}  // namespace nimble::bundle
