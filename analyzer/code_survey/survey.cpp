#include "analyzer/code_survey/survey.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/base/text.h"
#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/fatbin.h"
#include "analyzer/kernel_code/file_images.h"
#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/sass_flow/flow.h"

namespace nimble::analyzer {
namespace {

using code::FatbinEntry;
using code::FileImage;

constexpr std::size_t kMostKernels = 1 << 16;  // of one part of an image

char variant_of(const FatbinEntry& entry) {
  constexpr std::uint64_t kOwn = 0x100000, kFamily = 0x200000;
  return entry.variant == kOwn ? 'a' : entry.variant == kFamily ? 'f' : '\0';
}

// Does all of it, on as many threads as the machine has; what one throws is thrown here. `watch` is called on this
// thread, at the beginning and from time to time.
void for_each_index(std::size_t count, const std::function<void(std::size_t)>& work,
                    const std::function<void(std::size_t done)>& watch) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  const auto run = [&](bool watches) {
    try {
      if (watches) watch(0);
      for (std::size_t i; !failed && (i = next.fetch_add(1)) < count;) {
        work(i);
        if (watches) watch(i + 1);
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const std::size_t threads = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), count);
    try {
      for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run, false);
    } catch (const std::system_error&) {
      // Fewer, then.
    }
    run(true);
  }
  if (error) std::rethrow_exception(error);
}

class Survey {
 public:
  Survey(const std::string& path, const SurveyTasks& tasks) : path_(path), tasks_(tasks) {}

  void run() {
    if (const int error = file_.open(path_); error != 0)
      throw InputError(path_, 0, "", std::string("cannot be opened: ") + std::strerror(error));
    bool any = false;
    for (FileImage image; file_.next(image); any = true) {
      found_ = ImageFindings();
      kernels_.clear();
      found_.at = image.at;
      read(image);
      for (auto& [name, kernel] : kernels_) found_.kernels.push_back(std::move(kernel));
      tasks_.found(found_);
    }
    if (file_.error() != 0)
      throw InputError(path_, 0, "", std::string("cannot be read: ") + std::strerror(file_.error()));
    if (!any) throw InputError(path_, 0, "", "holds no code for a GPU: neither a fatbin, nor a cubin, nor PTX");
  }

 private:
  void unread(std::string what, std::string why) { found_.unread.push_back({std::move(what), std::move(why)}); }

  void read(const FileImage& image) {
    switch (image.kind) {
      case FileImage::Kind::fatbin:
        found_.kind = "fatbin";
        return image.error.empty() ? read_fatbin(image.bytes) : unread(found_.kind, image.error);
      case FileImage::Kind::cubin:
        found_.kind = "cubin";
        return image.error.empty() ? read_cubin(image.bytes, {}) : unread(found_.kind, image.error);
      case FileImage::Kind::ptx:
        found_.kind = "PTX";
        return image.error.empty() ? read_ptx(image.bytes, {}) : unread(found_.kind, image.error);
    }
  }

  void read_fatbin(code::Bytes bytes) {
    const code::Fatbin fatbin = code::read_fatbin(bytes);
    if (!fatbin.error.empty()) unread("fatbin", fatbin.error);
    for (const FatbinEntry& entry : fatbin.entries) {
      const CodeTarget target{entry.arch, variant_of(entry), entry.kind == FatbinEntry::Kind::ptx};
      if (!tasks_.wants_target(target)) continue;
      if (entry.kind == FatbinEntry::Kind::other) {
        unread("a part for " + target.text(), "it is neither machine code nor PTX");
        continue;
      }
      std::string why;
      if (!code::expand(entry, expanded_, why))
        unread(target.text(), why);
      else
        target.is_ptx ? read_ptx(expanded_, target) : read_cubin(expanded_, target);
    }
  }

  // `target` has no architecture if the code stands alone: then it says so itself.
  void read_cubin(code::Bytes bytes, CodeTarget target) {
    const code::Elf elf(bytes);
    if (elf.error()) return unread(target.arch == 0 ? "cubin" : target.text(), elf.error());
    if (target.arch == 0) target.arch = elf.arch();
    if (!tasks_.wants_target(target)) return;
    std::vector<Kernel> kernels;
    for (const code::ElfSymbol& symbol : elf.symbols())
      if (symbol.kernel)
        kernels.push_back({symbol.name, [&elf, &symbol] { return code::sass::prove_kernel(elf, symbol.name); }});
    prove(std::move(kernels), target);
  }

  void read_ptx(std::string_view text, CodeTarget target) {
    const code::PtxModule module = code::read_ptx(text);
    if (!module.error.empty()) return unread(target.arch == 0 ? "PTX" : target.text(), module.error);
    target.is_ptx = true;
    if (target.arch == 0) {
      target.arch = module.arch;
      if (module.variant.size() == 1) target.variant = module.variant[0];
    }
    if (!tasks_.wants_target(target)) return;
    std::vector<Kernel> kernels;
    for (const code::PtxFunction& function : module.functions)
      if (function.entry && function.defined)
        kernels.push_back({function.name, [&module, &function] { return code::prove_kernel(module, function); }});
    prove(std::move(kernels), target);
  }

  struct Kernel {
    std::string_view name;
    std::function<code::PtxProof()> prove;
  };
  void prove(std::vector<Kernel> kernels, const CodeTarget& target) {
    if (kernels.size() > kMostKernels) {
      unread(target.text(),
             plural(kernels.size() - kMostKernels, "kernel") + " beyond the first " + std::to_string(kMostKernels));
      kernels.resize(kMostKernels);
    }
    std::erase_if(kernels, [&](const Kernel& each) { return !tasks_.wants_kernel(std::string(each.name)); });
    std::vector<code::PtxProof> proofs(kernels.size());
    for_each_index(
        kernels.size(), [&](std::size_t i) { proofs[i] = kernels[i].prove(); },
        [&](std::size_t done) { tasks_.progress(kernels_done_ + done, file_.position(), file_.size()); });
    kernels_done_ += kernels.size();
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      KernelFindings& findings = kernels_[std::string(kernels[i].name)];
      findings.name = kernels[i].name;
      findings.add(target, std::move(proofs[i]));
    }
  }

  const std::string& path_;
  const SurveyTasks& tasks_;
  code::FileImages file_;
  ImageFindings found_;
  std::map<std::string, KernelFindings> kernels_;
  std::string expanded_;
  std::uint64_t kernels_done_ = 0;
};

}  // namespace

void survey_file(const std::string& path, const SurveyTasks& tasks) { Survey(path, tasks).run(); }

}  // namespace nimble::analyzer
