#include "replayer/bundle/heap.h"

#include <elf.h>

#include <optional>
#include <string>
#include <vector>

#include "code/fatbin.h"
#include "replayer/bundle/live_driver.h"

namespace nimble::bundle {

namespace {

using std::string_view;

bool is_of_heap(string_view name) { return name == "malloc" || name == "free"; }

// Among the names of an ELF file's symbols: the heap's functions are the driver's, and known by name.
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

void check_heap(const BundleFiles& files, const RecordedStep& step) {
  const Bundle& bundle = files.bundle();
  std::vector<std::optional<bool>> known(bundle.images.size());
  for (std::uint32_t op = 0; op < step.ops(); ++op) {
    const std::uint32_t image = bundle.images_of_ops[op];
    if (step.op(op).kind != CallKind::launch || step.trace().functions[step.op(op).function].proof) continue;
    if (!known[image]) known[image] = uses_heap(files.image(image));
    if (*known[image])
      throw Refused(step.describe(op) +
                    " may reach the device's heap, of which a bundle holds nothing: its image calls malloc or free");
  }
}

}  // namespace nimble::bundle
