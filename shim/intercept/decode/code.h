// Modules, libraries and functions: feeds the function table (shim/state/code/function_table.h).
#pragma once

#include "shim/intercept/decode/memory.h"
#include "shim/state/code/function_table.h"

namespace nimble::shim::decode {

// Code from memory: whether it reaches memory beside its parameters.
struct ModuleLoadData {
  template <class... Options>
  static void before(Entry, Call&, CUmodule*, const void*, Options...) {}
  template <class... Options>
  static void after(Call& call, CUmodule* out, const void* image, Options...) {
    call.brings_code = true;
    functions().loaded(*out, load_image(image), current_context());
  }
};

// Code from a file: whether it reaches memory beside its parameters.
struct ModuleLoadFile {
  static void before(Entry, Call&, CUmodule*, const char*) {}
  static void after(Call& call, CUmodule* out, const char* path) {
    call.brings_code = true;
    functions().loaded(*out, load_image_file(path), current_context());
  }
};

// A library from memory: whether its code reaches memory beside its parameters.
struct LibraryLoadData {
  template <class... Options>
  static void before(Entry, Call&, CUlibrary*, const void*, Options...) {}
  template <class... Options>
  static void after(Call& call, CUlibrary* out, const void* image, Options...) {
    call.brings_code = true;
    functions().loaded(*out, load_image(image));
  }
};

// A library from a file: whether its code reaches memory beside its parameters.
struct LibraryLoadFile {
  template <class... Options>
  static void before(Entry, Call&, CUlibrary*, const char*, Options...) {}
  template <class... Options>
  static void after(Call& call, CUlibrary* out, const char* path, Options...) {
    call.brings_code = true;
    functions().loaded(*out, load_image_file(path));
  }
};

// The end of code: its functions' handles may be reused, and graphs that hold them are dropped.
struct ModuleUnload {
  template <class Module>
  static void before(Entry, Call& call, Module module) {
    call.image = functions().unloading(module);
    call.ends = Ends::code;
  }
};

// The module of a library: the same code.
struct ModuleOfLibrary {
  static void before(Entry, Call&, CUmodule*, CUlibrary) {}
  static void after(Call& call, CUmodule* out, CUlibrary library) {
    call.brings_code = true;
    if (out) functions().same_image(*out, library);
  }
};

// A function, and whose it is.
struct FunctionOfModule {
  template <class Function, class Module>
  static void before(Entry, Call&, Function*, Module, const char*) {}
  template <class Function, class Module>
  static void after(Call& call, Function* out, Module module, const char*) {
    call.brings_code = true;
    if (out) functions().got(*out, module);
  }
};

// Many functions, and whose they are.
struct FunctionsOfModule {
  template <class Function, class Module>
  static void before(Entry, Call&, Function*, unsigned, Module) {}
  template <class Function, class Module>
  static void after(Call&, Function* out, unsigned count, Module module) {
    // Fewer than asked for may have been written; the rest of the array is not ours to read, so count what there is.
    if (out) functions().enumerated(out, count, module);
  }
};

// The function of a kernel: the same code.
struct FunctionOfKernel {
  static void before(Entry, Call&, CUfunction*, CUkernel) {}
  static void after(Call& call, CUfunction* out, CUkernel kernel) {
    call.brings_code = true;
    if (out) functions().same_function(*out, kernel);
  }
};

// A variable of a module: memory with an address and a size. A program that does not ask for the size may still write
// to it.
struct Global {
  template <class Pointer, class Size, class Module>
  static void before(Entry, Call&, Pointer*, Size*, Module, const char*) {}
  template <class Pointer, class Size, class Module>
  static void after(Call& call, Pointer* out, Size* bytes, Module module, const char* name) {
    if (!out || !functions().first_sight_of_global(*out, module, name)) return;
    allocation(call, is_managed(address_of(*out)) ? MemoryKind::managed : MemoryKind::global, bytes ? *bytes : 1);
    allocated(call, *out);
  }

 private:
  // The host may write or poll it without a call.
  static bool is_managed(std::uint64_t address);
};

// A tensor map: 128 bytes by which kernels reach memory. Today's drivers store the address in it unchanged, so the
// analyzer and the replayer find it among the parameters; others hide it. A map that reaches beyond the allocation of
// its address hides what it touches there.
struct TensorMap {
  template <class... Args>
  static void before(Entry, Call&, Args...) {}
  template <class... Rest>
  static void after(Call& call, CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                    const cuuint64_t* dims, const cuuint64_t* strides, Rest... rest) {
    check(call, map, address);
    bool sliced = false;
    ((sliced |= slices(rest)), ...);
    if (call.kind != CallKind::hidden && !inside_one(address_of(address), extent(type, rank, dims, strides), sliced))
      hidden(call, "tensor maps that reach beyond one allocation");
  }
  static void after(Call& call, CUtensorMap* map, void* address) { check(call, map, address); }

  // The bytes from a tensor's first element to the end of its last. Elements of less than a byte count as one.
  static std::uint64_t extent(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* dims,
                              const cuuint64_t* strides) {
    std::uint64_t bytes = rank == 0 ? 0 : dims[0] * bytes_of(type);
    for (cuuint32_t i = 1; i < rank; ++i) bytes += (dims[i] - 1) * strides[i - 1];
    return bytes;
  }

 private:
  static void hidden(Call& call, const char* note) {
    event(call, CallKind::hidden);
    call.note = note;
  }
  static void check(Call& call, const CUtensorMap* map, const void* address) {
    for (const cuuint64_t word : map->opaque) {
      if (word == address_of(address)) return;
    }
    hidden(call, "tensor maps that do not hold their address as it is");
  }
  // Whether the layout is in slices of channels, where strides mean something else.
  template <class T>
  static bool slices(const T&) {
    return false;
  }
  static bool slices(CUtensorMapInterleave layout) { return layout != CU_TENSOR_MAP_INTERLEAVE_NONE; }
  static std::uint64_t bytes_of(CUtensorMapDataType type) {
    switch (type) {
      case CU_TENSOR_MAP_DATA_TYPE_UINT16:
      case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
      case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
      case CU_TENSOR_MAP_DATA_TYPE_UINT32:
      case CU_TENSOR_MAP_DATA_TYPE_INT32:
      case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
      case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
      case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
        return 4;
      case CU_TENSOR_MAP_DATA_TYPE_UINT64:
      case CU_TENSOR_MAP_DATA_TYPE_INT64:
      case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return 8;
      default:
        return 1;
    }
  }
  // Whether the allocation at `address` holds so many bytes from there. Unknown (false) for sliced layouts.
  static bool inside_one(std::uint64_t address, std::uint64_t bytes, bool sliced);
};

}  // namespace nimble::shim::decode
