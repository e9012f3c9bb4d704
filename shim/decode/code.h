// Modules, libraries and functions: feeds the function table (shim/function_table.h).
#pragma once

#include "shim/decode/memory.h"
#include "shim/function_table.h"

namespace nimble::shim::decode {

struct ModuleLoadData {
  template <class... Options>
  static void before(Entry, Call&, CUmodule*, const void*, Options...) {}
  template <class... Options>
  static void after(Call&, CUmodule* out, const void* image, Options...) {
    functions().loaded(*out, image_facts(image));
  }
};

struct ModuleLoadFile {
  static void before(Entry, Call&, CUmodule*, const char*) {}
  static void after(Call&, CUmodule* out, const char* path) { functions().loaded(*out, image_facts_of_file(path)); }
};

struct LibraryLoadData {
  template <class... Options>
  static void before(Entry, Call&, CUlibrary*, const void*, Options...) {}
  template <class... Options>
  static void after(Call&, CUlibrary* out, const void* image, Options...) {
    functions().loaded(*out, image_facts(image));
  }
};

struct LibraryLoadFile {
  template <class... Options>
  static void before(Entry, Call&, CUlibrary*, const char*, Options...) {}
  template <class... Options>
  static void after(Call&, CUlibrary* out, const char* path, Options...) {
    functions().loaded(*out, image_facts_of_file(path));
  }
};

struct ModuleUnload {
  template <class Module>
  static void before(Entry, Call& call, Module module) {
    functions().unloading(module);
    call.ends = Ends::code;
  }
};

struct ModuleOfLibrary {
  static void before(Entry, Call&, CUmodule*, CUlibrary) {}
  static void after(Call&, CUmodule* out, CUlibrary library) {
    if (out) functions().same_image(*out, library);
  }
};

struct FunctionOfModule {
  template <class Function, class Module>
  static void before(Entry, Call&, Function*, Module, const char*) {}
  template <class Function, class Module>
  static void after(Call&, Function* out, Module module, const char*) {
    if (out) functions().got(*out, module);
  }
};

struct FunctionsOfModule {
  template <class Function, class Module>
  static void before(Entry, Call&, Function*, unsigned, Module) {}
  template <class Function, class Module>
  static void after(Call&, Function* out, unsigned count, Module module) {
    // Fewer than asked for may have been written; the rest of the array is not ours to read, so count what there is.
    if (out) functions().enumerated(out, count, module);
  }
};

struct FunctionOfKernel {
  static void before(Entry, Call&, CUfunction*, CUkernel) {}
  static void after(Call&, CUfunction* out, CUkernel kernel) {
    if (out) functions().same_function(*out, kernel);
  }
};

struct Global {
  template <class Module>
  static void before(Entry, Call&, CUdeviceptr*, std::size_t*, Module, const char*) {}
  template <class Module>
  static void after(Call& call, CUdeviceptr* out, std::size_t* bytes, Module module, const char*) {
    if (!out || !bytes || !functions().first_sight_of_global(*out, module)) return;
    allocation(call, MemoryKind::global, *bytes);
    allocated(call, *out);
  }
};

}  // namespace nimble::shim::decode
