#include "analyzer/kernel_code/image.h"

#include <elf.h>

#include <xxhash.h>

#include <algorithm>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/sass_flow/flow.h"

namespace nimble::code {
namespace {

constexpr std::size_t kMostPtxBytes = std::size_t{256} << 20;

KernelFacts nothing_known(std::string_view why) {
  KernelFacts facts;
  facts.why = facts.why_not_proven = why;
  return facts;
}

bool is_elf(Bytes bytes) { return bytes.starts_with(std::string_view(ELFMAG, SELFMAG)); }
bool is_ptx(Bytes bytes) { return bytes.substr(0, 4096).find(".version") != Bytes::npos; }

// Whether it proves anything, by instructions that tests have run against proofs.
bool is_tried(const PtxProof& proof) { return proof.understood && proof.untried.empty(); }

// sm_90 code runs on 9.0 and later 9.x.
bool runs_on(unsigned code, unsigned device) { return code / 10 == device / 10 && code <= device; }

}  // namespace

// One cubin or one PTX text by itself: a fatbin of one part, made for any device.
struct Image::Question {
  std::string fetched;
  Bytes bytes;
  Fatbin fatbin;
  bool alone = false;
  std::map<std::size_t, std::string> texts;  // of parts, expanded
  std::map<std::size_t, PtxModule> modules;
  std::map<std::size_t, Cubin>* cubins = nullptr;

  std::string open() {
    if (fatbin_bytes(bytes) != 0) {
      fatbin = read_fatbin(bytes);
      return fatbin.error.empty() && fatbin.entries.empty() ? "empty fatbin" : fatbin.error;
    }
    FatbinEntry entry;
    entry.kind = is_elf(bytes) ? FatbinEntry::Kind::elf : FatbinEntry::Kind::ptx;
    entry.payload = bytes;
    entry.expanded_bytes = bytes.size();
    if (!is_elf(bytes) && !is_ptx(bytes)) return "unknown image format";
    fatbin.entries.push_back(entry);
    alone = true;
    return {};
  }

  bool is(std::size_t part, FatbinEntry::Kind kind) const { return fatbin.entries[part].kind == kind; }

  // Null, and why, if it cannot be expanded.
  const std::string* expanded(std::size_t part, std::string& why) {
    if (const auto found = texts.find(part); found != texts.end()) return &found->second;
    std::string text;
    if (!expand(fatbin.entries[part], text, why)) return nullptr;
    return &texts.emplace(part, std::move(text)).first->second;
  }

  const Cubin& cubin(std::size_t part) {
    if (const auto found = cubins->find(part); found != cubins->end()) return found->second;
    Cubin read;
    if (const std::string* const text = expanded(part, read.error)) read = read_cubin(*text);
    return cubins->emplace(part, std::move(read)).first->second;
  }

  const PtxModule& ptx(std::size_t part) {
    if (const auto found = modules.find(part); found != modules.end()) return found->second;
    PtxModule read;
    if (const std::string* const text = expanded(part, read.error)) read = read_ptx(*text);
    return modules.emplace(part, std::move(read)).first->second;
  }
};

// Fetches the bytes, unless they were. Why they tell nothing, or nothing.
std::optional<std::string> Image::open(Question& question) {
  question.cubins = &cubins_;
  if (source_) question.fetched = source_().value_or(std::string());
  question.bytes = source_ ? Bytes(question.fetched) : Bytes(held_);
  if (!identity_ && !question.bytes.empty()) {
    identity_ = ImageIdentity::of(question.bytes);
    digest_ = digest_of(question.bytes);
  }
  const std::string error = question.open();
  if (error.empty()) return std::nullopt;
  return question.bytes.empty() ? "its image is gone" : error;
}

KernelFacts Image::kernel(std::string_view name, std::span<const unsigned> archs) {
  std::lock_guard lock(mutex_);
  Question question;
  std::optional<std::string> error;
  const bool was_read = identity_.has_value();
  if (!was_read) error = open(question);
  if (!identity_) return nothing_known(*error);
  const std::string asked = ProofCache::question(*identity_, name, archs);
  const std::optional<ProofCache::Known> known = proofs_->find(asked);
  if (known && !known->is_to_be_checked) return known->facts;
  if (was_read) error = open(question);
  if (question.bytes.empty()) return known ? known->facts : nothing_known(*error);
  KernelFacts facts = error ? nothing_known(*error) : read(question, name, archs);
  facts.image_digest = digest_;
  known ? proofs_->checked(asked, known->facts, facts) : proofs_->keep(asked, facts);
  return facts;
}

// Each fact has its own rule for how the facts for several devices combine.
KernelFacts Image::read(Question& question, std::string_view name, std::span<const unsigned> archs) {
  KernelFacts facts = nothing_known("no device is known");
  for (std::size_t i = 0; i < archs.size(); ++i) {
    KernelFacts here = on(question, name, archs[i]);
    if (i == 0) {
      facts = std::move(here);
      continue;
    }
    if (here.accesses != facts.accesses || here.params != facts.params || here.globals != facts.globals ||
        here.stored != facts.stored || here.extents != facts.extents) {
      facts.accesses.reset();
      facts.why_not_proven = "it differs from device to device";
    }
    facts.origin = std::max(facts.origin, here.origin);
    facts.follows_memory = facts.follows_memory || here.follows_memory;
    const bool contained = facts.self_contained && here.self_contained;
    const bool but_for_constants = (facts.self_contained || facts.constants) && (here.self_contained || here.constants);
    if (facts.self_contained || (facts.constants && !but_for_constants)) facts.why = here.why;
    facts.self_contained = contained;
    facts.constants = but_for_constants && !contained;
  }
  return facts;
}

// The parts of an image that may matter for one kernel on one device.
struct Image::Candidates {
  std::string error;                        // why nothing is known; else empty
  std::vector<std::size_t> owners, ptx;     // machine code that has the kernel; all PTX
  std::vector<const CubinKernel*> kernels;  // in `owners`
  std::optional<std::size_t> compiled;      // PTX that the driver may compile
};

// What may run: machine code for this device; if there is none for exactly this device, also the newest PTX that it
// takes.
// The rules of the driver, in the order in which they apply.
Image::Candidates Image::candidates(Question& question, std::string_view name, unsigned arch) {
  const auto& entries = question.fatbin.entries;
  Candidates result;
  const auto no = [&](std::string why) {
    result.error = std::move(why);
    return result;
  };
  std::vector<std::size_t> machine;
  bool exact = false;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (question.is(i, FatbinEntry::Kind::ptx)) result.ptx.push_back(i);
    if (question.is(i, FatbinEntry::Kind::other)) return no("an entry of unknown kind in its fatbin");
    if (!question.is(i, FatbinEntry::Kind::elf) || (!question.alone && !runs_on(entries[i].arch, arch))) continue;
    exact |= question.alone || entries[i].arch == arch;
    machine.push_back(i);
  }
  for (const std::size_t part : machine) {
    const Cubin& cubin = question.cubin(part);
    if (!cubin.error.empty()) return no(cubin.error);
    if (const CubinKernel* kernel = cubin.find(name)) {
      result.kernels.push_back(kernel);
      result.owners.push_back(part);
    }
  }
  auto& compiled = result.compiled;
  for (const std::size_t part : result.ptx) {
    if (exact || (!question.alone && entries[part].arch > arch)) continue;
    if (!compiled || entries[*compiled].arch < entries[part].arch) compiled = part;
  }
  for (const std::size_t part : result.ptx)
    if (compiled && part != *compiled && !question.alone && entries[part].arch == entries[*compiled].arch)
      return no("it has PTX of one architecture twice");
  if (result.kernels.empty() && !compiled) return no("it is not in its image's code for this device");
  return result;
}

// Whether this PTX is what the machine code was made from, as its virtual architecture tells.
bool Image::matches(Question& question, const Candidates& candidates, std::size_t ptx) {
  const auto& entries = question.fatbin.entries;
  return std::all_of(candidates.owners.begin(), candidates.owners.end(), [&](std::size_t owner) {
    const unsigned through = question.cubin(owner).virtual_arch;
    return through != 0 && through == entries[ptx].arch && entries[owner].variant == entries[ptx].variant;
  });
}

// What the PTX proves that may be compiled; else that which the machine code was made through; else any.
KernelFacts Image::facts_of_ptx(Question& question, std::string_view name, const Candidates& candidates,
                                PtxProof& proof) {
  const auto& entries = question.fatbin.entries;
  const auto is_match = [&](std::size_t part) { return matches(question, candidates, part); };
  std::optional<std::size_t> source = candidates.compiled;
  for (const std::size_t part : candidates.ptx)
    if (!candidates.compiled && (!source || (!is_match(*source) && is_match(part)))) source = part;

  KernelFacts facts = nothing_known("its image has no PTX for it");
  if (!source) return facts;
  const PtxModule& module = question.ptx(*source);
  if (!module.error.empty()) return nothing_known(module.error);
  if (!question.alone && module.arch != entries[*source].arch)
    return nothing_known("its PTX is for another target than its fatbin says");
  const PtxFunction* function = module.find(name);
  if (function == nullptr || !function->entry) return facts;
  proof = prove_kernel(module, *function);
  facts.origin = is_match(*source) ? Origin::same : Origin::other;
  facts.why_not_proven = proof.why;
  facts.follows_memory = proof.follows_memory && facts.origin == Origin::same;
  if (proof.understood) facts.accesses = proof.accesses;
  facts.globals = proof.globals;
  facts.stored = proof.stored;
  facts.extents = proof.extents;
  for (const PtxParam& param : proof.params) facts.params.emplace_back(param.offset, param.size);
  return facts;
}

// What the machine code proves that the driver loads: nothing if it may be one of several that differ.
std::optional<PtxProof> Image::machine_proof(Question& question, std::string_view name, const Candidates& candidates) {
  std::optional<PtxProof> found;
  for (const std::size_t part : candidates.owners) {
    std::string error;
    const std::string* const text = question.expanded(part, error);
    if (text == nullptr) return std::nullopt;
    const Elf elf(*text);
    if (elf.error()) return std::nullopt;
    PtxProof proof = sass::prove_kernel(elf, name);
    if (found &&
        (found->accesses != proof.accesses || found->globals != proof.globals || found->stored != proof.stored ||
         found->extents != proof.extents || found->understood != proof.understood))
      return std::nullopt;
    const bool follows_memory = proof.follows_memory || (found && found->follows_memory);
    found = std::move(proof);
    found->follows_memory = follows_memory;
  }
  return found;
}

// Where the driver loads machine code, that is what runs. What its PTX proves is more exact where it proves anything:
// it tells conditions. How far addresses get machine code alone tells.
void Image::add_machine_code(const std::optional<PtxProof>& proof, KernelFacts& facts) {
  if (!proof) return;
  const bool is_proven = is_tried(*proof);
  const bool is_proven_always = is_proven && proof->extents.doubts.empty();
  // By the same words; a parameter that is aligned to more than 16 bytes may lie elsewhere in the constant bank.
  const bool is_same_layout = std::ranges::equal(
      facts.params, proof->params,
      [](const auto& one, const PtxParam& other) { return one.first == other.offset && one.second == other.size; });
  if (is_proven_always && (!facts.accesses || is_same_layout)) {
    facts.extents = proof->extents;
    facts.extents.of_accesses = false;
  }
  if (facts.accesses && facts.origin == Origin::same) return;
  facts.follows_memory = proof->follows_memory;
  if (!is_proven) {
    if (!facts.accesses)
      facts.why_not_proven = proof->understood ? "its machine code has " + proof->untried : proof->why;
    return;
  }
  facts.accesses = proof->accesses;
  facts.why_not_proven.clear();
  facts.origin = Origin::same;
  facts.globals = proof->globals;
  facts.stored = proof->stored;
  facts.extents = proof->extents;
  facts.params.clear();
  for (const PtxParam& param : proof->params) facts.params.emplace_back(param.offset, param.size);
}

KernelFacts Image::on(Question& question, std::string_view name, unsigned arch) {
  const Candidates parts = candidates(question, name, arch);
  if (!parts.error.empty()) return nothing_known(parts.error);
  std::optional<PtxProof> machine;
  if (!parts.compiled) machine = machine_proof(question, name, parts);
  // PTX takes long to read. Where the machine code was not made from it, what the machine code proves is all that
  // counts.
  const auto is_match = [&](std::size_t part) { return matches(question, parts, part); };
  const bool is_told = machine && is_tried(*machine) && std::ranges::none_of(parts.ptx, is_match);
  PtxProof proof;
  KernelFacts facts = is_told ? nothing_known({}) : facts_of_ptx(question, name, parts, proof);
  // Machine code says so itself, or its own PTX does, kernel by kernel.
  const bool by_ptx = facts.origin == Origin::same && proof.self_contained;
  facts.self_contained = by_ptx || !parts.compiled;
  facts.why.clear();
  if (parts.compiled && !by_ptx)
    facts.why = facts.origin == Origin::none ? facts.why_not_proven : proof.why_not_self_contained;
  for (const CubinKernel* kernel : parts.kernels) {
    if (by_ptx || kernel->self_contained) continue;
    facts.constants = kernel->constants && (facts.self_contained || facts.constants);
    facts.self_contained = false;
    if (facts.constants || !kernel->constants) facts.why = kernel->why;
  }
  if (!facts.self_contained && facts.why.empty()) facts.why = "its PTX is not what runs";
  add_machine_code(machine, facts);
  return facts;
}

KernelFacts Image::whole() {
  std::lock_guard lock(mutex_);
  Question question;
  if (const auto error = open(question)) return nothing_known(*error);
  KernelFacts facts;
  facts.self_contained = true;
  bool any = false;
  const auto no = [&](std::string_view why) {
    if (facts.self_contained) facts.why = why;
    facts.self_contained = false;
  };
  for (std::size_t i = 0; i < question.fatbin.entries.size() && facts.self_contained; ++i) {
    if (question.is(i, FatbinEntry::Kind::other)) no("an entry of unknown kind in its fatbin");
    if (question.is(i, FatbinEntry::Kind::elf)) {
      const Cubin& cubin = question.cubin(i);
      if (!cubin.error.empty()) no(cubin.error);
      any |= !cubin.kernels.empty();
      for (const CubinKernel& kernel : cubin.kernels)
        if (!kernel.self_contained) no(kernel.why);
    } else if (question.is(i, FatbinEntry::Kind::ptx)) {
      const PtxModule& module = question.ptx(i);
      if (!module.error.empty()) no(module.error);
      for (const PtxFunction& function : module.functions) {
        if (!function.entry || !function.defined || !facts.self_contained) continue;
        any = true;
        if (const PtxProof proof = prove_kernel(module, function); !proof.self_contained)
          no(proof.why_not_self_contained);
      }
    }
  }
  if (!any) no("it holds no kernel");
  return facts;
}

std::uint64_t digest_of(Bytes bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::optional<Bytes> image_in_memory(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (bytes == nullptr) return std::nullopt;
  constexpr std::size_t kMagic = 4;
  const auto magic = *read_at<std::uint32_t>({bytes, kMagic}, 0);
  if (magic == kFatbinWrapperMagic) {
    struct Wrapper {
      std::uint32_t magic, version;
      const char* data;
    };
    const auto wrapper = *read_at<Wrapper>({bytes, sizeof(Wrapper)}, 0);
    // Version 2 is code that is linked when it is loaded, with parts from elsewhere.
    if (wrapper.version != 1 || wrapper.data == nullptr) return std::nullopt;
    if (*read_at<std::uint32_t>({wrapper.data, kMagic}, 0) != kFatbinMagic) return std::nullopt;
    return Bytes(wrapper.data, fatbin_bytes({wrapper.data, 16}));
  }
  if (magic == kFatbinMagic) return Bytes(bytes, fatbin_bytes({bytes, 16}));
  if (is_elf({bytes, kMagic})) return Bytes(bytes, elf_bytes({bytes, sizeof(Elf64_Ehdr)}));
  const Bytes text(bytes, strnlen(bytes, kMostPtxBytes));
  return is_ptx(text) ? std::optional(text) : std::nullopt;
}

}  // namespace nimble::code
