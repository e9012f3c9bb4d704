// Copies and sets. Host and device pointers share one address space (unified addressing), so one shape holds them all.
#pragma once

#include "shim/decode/launch.h"

namespace nimble::shim::decode {

struct Copy {
  template <class Dst, class Src>
  static void before(Entry entry, Call& call, Dst dst, Src src, std::size_t bytes, CUstream stream = nullptr) {
    op(entry, call, CallKind::copy, stream);
    call.dst.address = address_of(dst);
    call.src.address = address_of(src);
    call.width = bytes;
  }
};

struct CopyPeer {
  static void before(Entry entry, Call& call, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                     CUcontext src_context, std::size_t bytes, CUstream stream = nullptr) {
    Copy::before(entry, call, dst, src, bytes, stream);
    call.plain = dst_context == src_context;
  }
};

struct Copy2D {
  static void before(Entry entry, Call& call, const CUDA_MEMCPY2D* copy, CUstream stream = nullptr) {
    if (!copy || copy->srcMemoryType == CU_MEMORYTYPE_ARRAY || copy->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
      Opaque::before(entry, call, stream);
      return;
    }
    op(entry, call, CallKind::copy, stream);
    const std::uint64_t dst = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? address_of(copy->dstHost) : copy->dstDevice;
    const std::uint64_t src = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? address_of(copy->srcHost) : copy->srcDevice;
    // A pitch of 0 means rows without gaps.
    const std::uint64_t dst_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
    const std::uint64_t src_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
    call.dst = {dst + copy->dstY * dst_pitch + copy->dstXInBytes, dst_pitch};
    call.src = {src + copy->srcY * src_pitch + copy->srcXInBytes, src_pitch};
    call.width = copy->WidthInBytes;
    call.height = copy->Height;
  }
};

template <std::uint32_t element>
struct Set {
  template <class Value>
  static void before(Entry entry, Call& call, CUdeviceptr dst, Value value, std::size_t count,
                     CUstream stream = nullptr) {
    op(entry, call, CallKind::set, stream);
    call.dst.address = dst;
    call.width = count * element;
    call.value = value;
    call.element = element;
  }
};

template <std::uint32_t element>
struct Set2D {
  template <class Value>
  static void before(Entry entry, Call& call, CUdeviceptr dst, std::size_t pitch, Value value, std::size_t width,
                     std::size_t height, CUstream stream = nullptr) {
    Set<element>::before(entry, call, dst, value, width, stream);
    call.dst.pitch = pitch;
    call.height = height;
  }
};

}  // namespace nimble::shim::decode
