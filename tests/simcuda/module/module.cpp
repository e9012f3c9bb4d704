// See module.h. An image is an ELF shared object in a container. It is written to an anonymous file and opened from
// there, so each load has globals of its own.
#include "tests/simcuda/module/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/simcuda/driver/driver.h"

namespace simcuda {
namespace {

// No image is larger: a size beyond is garbage.
constexpr std::uint64_t kMaxImage = std::uint64_t{1} << 30;

bool write_all(int file, const char* bytes, std::size_t size) {
  while (size != 0) {
    const ssize_t written = write(file, bytes, size);
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

// The variables that the object exports: those of the device.
std::map<std::string, LoadedImage::Global> globals_of(const char* elf, std::uint64_t size, void* handle) {
  std::map<std::string, LoadedImage::Global> globals;
  Elf64_Ehdr header;
  std::memcpy(&header, elf, sizeof header);
  if (header.e_shoff + std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr) > size) return globals;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), elf + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const auto name_of_section = [&](std::size_t index) {
    if (index >= sections.size() || header.e_shstrndx >= sections.size()) return "";
    return elf + sections[header.e_shstrndx].sh_offset + sections[index].sh_name;
  };
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    const char* names = elf + sections[section.sh_link].sh_offset;
    std::vector<Elf64_Sym> symbols(section.sh_size / sizeof(Elf64_Sym));
    std::memcpy(symbols.data(), elf + section.sh_offset, symbols.size() * sizeof(Elf64_Sym));
    for (const Elf64_Sym& symbol : symbols) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0) continue;
      const char* name = names + symbol.st_name;
      void* address = dlsym(handle, name);
      if (address == nullptr) continue;
      globals[name] = {reinterpret_cast<std::uint64_t>(address), symbol.st_size,
                       std::strcmp(name_of_section(symbol.st_shndx), "simcuda_managed") == 0};
    }
  }
  return globals;
}

}  // namespace

std::shared_ptr<LoadedImage> LoadedImage::load(const void* bytes, CUcontext context, CUresult& error) {
  Driver& d = driver();
  SimImageHeader header;
  std::memcpy(&header, bytes, sizeof header.magic);
  if (std::memcmp(header.magic, SIMCUDA_IMAGE_MAGIC, sizeof header.magic) != 0) {
    // Code for a real GPU: a fatbin, its wrapper, a cubin, or PTX text.
    const std::uint32_t magic = *reinterpret_cast<const std::uint32_t*>(header.magic);
    const bool real = magic == 0xba55ed50 || magic == 0x466243b1 || std::memcmp(header.magic, ELFMAG, SELFMAG) == 0 ||
                      std::memcmp(header.magic, "//", 2) == 0 || std::memcmp(header.magic, ".version", 8) == 0;
    error = real ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
    if (d.options.log)
      std::fprintf(stderr, "simcuda: %s: the simulated GPU loads images made by add_simcuda_image\n",
                   real ? "this module holds code for a real GPU" : "this is no module image");
    return nullptr;
  }
  std::memcpy(&header, bytes, sizeof header);
  const bool instrumented = d.tracking.on() && header.instrumented_size != 0;
  const std::uint64_t offset = instrumented ? header.instrumented_offset : header.plain_offset;
  const std::uint64_t size = instrumented ? header.instrumented_size : header.plain_size;
  const char* elf = static_cast<const char*>(bytes) + offset;
  error = CUDA_ERROR_INVALID_IMAGE;
  if (offset < sizeof header || offset > kMaxImage || size < sizeof(Elf64_Ehdr) || size > kMaxImage ||
      std::memcmp(elf, ELFMAG, SELFMAG) != 0) {
    return nullptr;
  }

  std::shared_ptr<LoadedImage> image(new LoadedImage());
  image->file_ = memfd_create("simcuda image", MFD_CLOEXEC);
  if (image->file_ < 0 || !write_all(image->file_, elf, size)) {
    error = CUDA_ERROR_OPERATING_SYSTEM;
    return nullptr;
  }
  // The file stays open as long as the object: the loader would take a second file of the same number for this one.
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", image->file_);
  image->handle_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (image->handle_ == nullptr) {
    std::fprintf(stderr, "simcuda: cannot load the image: %s\n", dlerror());
    error = CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    return nullptr;
  }
  const auto table = reinterpret_cast<decltype(&simcuda_image)>(dlsym(image->handle_, "simcuda_image"));
  if (table == nullptr) return nullptr;
  const SimImage* described = table();
  if (described->set_hooks != nullptr) described->set_hooks(&KernelRecorder::hooks());
  for (std::uint32_t i = 0; i < described->kernel_count; ++i) {
    const SimKernel& kernel = described->kernels[i];
    Dl_info symbol;
    if (dladdr(kernel.symbol, &symbol) == 0 || symbol.dli_sname == nullptr || symbol.dli_saddr != kernel.symbol) {
      std::fprintf(stderr, "simcuda: a kernel of the image has no symbol: it needs external linkage\n");
      return nullptr;
    }
    image->kernels.push_back({d.tracking.intern(symbol.dli_sname), kernel, described->set_hooks != nullptr});
  }
  image->globals = globals_of(elf, size, image->handle_);
  for (const auto& entry : image->globals) {
    d.memory.adopt(BlockKind::kGlobal, entry.second.address, entry.second.bytes, context);
  }
  error = CUDA_SUCCESS;
  return image;
}

LoadedImage::~LoadedImage() {
  Driver& d = driver();
  for (const auto& entry : globals) {
    d.tracking.forget(entry.second.address, entry.second.address + entry.second.bytes);
    if (Block* block = d.memory.find(entry.second.address); block != nullptr) d.memory.release(block);
  }
  if (handle_ != nullptr) dlclose(handle_);
  if (file_ >= 0) close(file_);
}

const KernelCode* LoadedImage::find(const char* name) const {
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const KernelCode& code) { return std::strcmp(code.name, name) == 0; });
  return found != kernels.end() ? &*found : nullptr;
}

std::vector<char> read_image_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  // Room for a header to be read from whatever this is.
  if (!bytes.empty() && bytes.size() < sizeof(SimImageHeader)) bytes.resize(sizeof(SimImageHeader));
  return bytes;
}

const KernelCode* code_of(CUfunction function) {
  if (valid(function)) return function->code;
  const CUkernel kernel = reinterpret_cast<CUkernel>(function);
  return valid(kernel) ? kernel->code : nullptr;
}

CUmodule module_of(CUlibrary library, CUcontext context) {
  CUmodule& module = library->modules[context];
  if (module == nullptr) {
    module = driver().modules.make();
    module->image = library->image;
    module->context = context;
    module->library = library;
    context->modules.push_back(module);
  }
  return module;
}

CUfunction function_of(CUmodule module, const KernelCode* code) {
  CUfunction& function = module->functions[code];
  if (function == nullptr) {
    function = driver().functions.make();
    function->code = code;
    function->module = module;
  }
  return function;
}

void unload_module(CUmodule module) {
  Driver& d = driver();
  d.engine.finish_all();  // queued launches hold on to its code
  for (const auto& entry : module->functions) d.functions.release(entry.second);
  std::erase(module->context->modules, module);
  if (module->library != nullptr) module->library->modules.erase(module->context);
  d.modules.release(module);
}

}  // namespace simcuda
