// Copies and sets. Host and device pointers share one address space (unified addressing), so one shape holds them all.
#pragma once

#include <type_traits>

#include "shim/intercept/decode/launch.h"

namespace nimble::shim::decode {

// A copy of one range: where from, where to, how much.
struct Copy {
  template <class Dst, class Src>
  static void before(Entry entry, Call& call, Dst dst, Src src, std::size_t bytes, CUstream stream = nullptr) {
    op(entry, call, CallKind::copy, stream);
    call.transfer.dst.address = address_of(dst);
    call.transfer.src.address = address_of(src);
    call.transfer.width = bytes;
    call.transfer.host_source = std::is_pointer_v<Src>;
    call.transfer.device_source = std::is_pointer_v<Dst>;  // from the device to the host
  }
};

// A copy of one range between contexts. If they differ, no graph may hold it.
struct CopyPeer {
  static void before(Entry entry, Call& call, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                     CUcontext src_context, std::size_t bytes, CUstream stream = nullptr) {
    Copy::before(entry, call, dst, src, bytes, stream);
    call.plain = dst_context == src_context;
  }
};

// One side of a copy of rows and layers, wherever the descriptor keeps it.
struct BoxSide {
  std::uint64_t address = 0, pitch = 0, layer_height = 0;
};

template <class Copy>
BoxSide box_dst(const Copy& copy) {
  const std::uint64_t base = copy.dstMemoryType == CU_MEMORYTYPE_HOST ? address_of(copy.dstHost) : copy.dstDevice;
  // A pitch of 0 means rows without gaps.
  const std::uint64_t pitch = copy.dstPitch ? copy.dstPitch : copy.WidthInBytes;
  return {base + copy.dstY * pitch + copy.dstXInBytes, pitch, 0};
}

template <class Copy>
BoxSide box_src(const Copy& copy) {
  const std::uint64_t base = copy.srcMemoryType == CU_MEMORYTYPE_HOST ? address_of(copy.srcHost) : copy.srcDevice;
  const std::uint64_t pitch = copy.srcPitch ? copy.srcPitch : copy.WidthInBytes;
  return {base + copy.srcY * pitch + copy.srcXInBytes, pitch, 0};
}

template <class Copy>
BoxSide box_dst_3d(const Copy& copy) {
  BoxSide side = box_dst(copy);
  side.layer_height = copy.dstHeight ? copy.dstHeight : copy.Height;
  side.address += copy.dstZ * side.layer_height * side.pitch;
  return side;
}

template <class Copy>
BoxSide box_src_3d(const Copy& copy) {
  BoxSide side = box_src(copy);
  side.layer_height = copy.srcHeight ? copy.srcHeight : copy.Height;
  side.address += copy.srcZ * side.layer_height * side.pitch;
  return side;
}

template <class Copy>
bool between_memory(const Copy& copy) {
  return copy.srcMemoryType != CU_MEMORYTYPE_ARRAY && copy.dstMemoryType != CU_MEMORYTYPE_ARRAY;
}

// What a copy of layers touches, including the gaps between its rows. False if one side is an array.
template <class Copy>
bool touch_copy_3d(std::vector<TraceAccess>& list, const Copy& copy) {
  if (!between_memory(copy)) return false;
  const BoxSide src = box_src_3d(copy), dst = box_dst_3d(copy);
  touch_box(list, src.address, copy.WidthInBytes, copy.Height, copy.Depth, src.pitch, src.layer_height, kReads);
  touch_box(list, dst.address, copy.WidthInBytes, copy.Height, copy.Depth, dst.pitch, dst.layer_height, kWrites);
  return true;
}

// A copy of rows: where from and to, with both pitches. With an array on one side it is ordered with everything.
struct Copy2D {
  template <class Copy>
  static void before(Entry entry, Call& call, const Copy* copy, CUstream stream = nullptr) {
    if (!copy || !between_memory(*copy)) {
      Opaque::before(entry, call, stream);
      return;
    }
    op(entry, call, CallKind::copy, stream);
    rows(call, *copy, box_dst(*copy), box_src(*copy));
  }

  template <class Copy>
  static void rows(Call& call, const Copy& copy, const BoxSide& dst, const BoxSide& src) {
    call.transfer.dst = {dst.address, dst.pitch};
    call.transfer.src = {src.address, src.pitch};
    call.transfer.width = copy.WidthInBytes;
    call.transfer.height = copy.Height;
  }
};

// A copy of layers: one layer as a copy of rows, more as one range on each side that holds them all. With an array on
// one side it is ordered with everything.
struct Copy3D {
  template <class Copy>
  static void before(Entry entry, Call& call, const Copy* copy, CUstream stream = nullptr) {
    if (copy && between_memory(*copy) && copy->Depth == 1) {
      op(entry, call, CallKind::copy, stream);
      Copy2D::rows(call, *copy, box_dst_3d(*copy), box_src_3d(*copy));
      call.plain = same_context(*copy);
      return;
    }
    Opaque::before(entry, call, stream);
    if (!copy) return;
    call.arguments = {copy};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      return touch_copy_3d(list, *static_cast<const Copy*>(op.arguments[0]));
    };
  }

 private:
  template <class Copy>
  static bool same_context(const Copy&) {
    return true;
  }
  static bool same_context(const CUDA_MEMCPY3D_PEER& copy) { return copy.srcContext == copy.dstContext; }
};

// Many copies at once: all ranges, where every source is read in stream order.
struct CopyBatch {
  template <class... Rest>
  static void before(Entry entry, Call& call, CUdeviceptr* dsts, CUdeviceptr* srcs, std::size_t* sizes,
                     std::size_t count, CUmemcpyAttributes* attributes, std::size_t*, std::size_t attribute_count,
                     Rest... rest) {
    Opaque::before(entry, call, rest...);
    // A source that may be read at another time is not stream-ordered: then there is no list.
    for (std::size_t i = 0; i < attribute_count; ++i) {
      if (!attributes || attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) return;
    }
    call.arguments = {dsts, srcs, sizes, reinterpret_cast<const void*>(count)};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      const auto* const dst = static_cast<const CUdeviceptr*>(op.arguments[0]);
      const auto* const src = static_cast<const CUdeviceptr*>(op.arguments[1]);
      const auto* const bytes = static_cast<const std::size_t*>(op.arguments[2]);
      for (std::uint64_t i = 0; i < address_of(op.arguments[3]); ++i) {
        touch(list, src[i], bytes[i], kReads);
        touch(list, dst[i], bytes[i], kWrites);
      }
      return true;
    };
  }
};

// Many copies of layers at once: all ranges, where there are no arrays and every source is read in stream order.
struct CopyBatch3D {
  template <class... Rest>
  static void before(Entry entry, Call& call, std::size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, Rest... rest) {
    Opaque::before(entry, call, rest...);
    call.arguments = {ops, reinterpret_cast<const void*>(count)};
    call.list_accesses = [](const Call& op, std::vector<TraceAccess>& list) {
      const auto* const all = static_cast<const CUDA_MEMCPY3D_BATCH_OP*>(op.arguments[0]);
      for (std::uint64_t i = 0; i < address_of(op.arguments[1]); ++i) {
        if (all[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || !side(list, all[i], all[i].src, kReads) ||
            !side(list, all[i], all[i].dst, kWrites))
          return false;
      }
      return true;
    };
  }

 private:
  // Between pointers an element is a byte; lengths of 0 mean no gaps.
  static bool side(std::vector<TraceAccess>& list, const CUDA_MEMCPY3D_BATCH_OP& op, const CUmemcpy3DOperand& operand,
                   AccessMode mode) {
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return false;
    const auto& pointer = operand.op.ptr;
    touch_box(list, pointer.ptr, op.extent.width, op.extent.height, op.extent.depth,
              pointer.rowLength ? pointer.rowLength : op.extent.width,
              pointer.layerHeight ? pointer.layerHeight : op.extent.height, mode);
    return true;
  }
};

// One value over a range: where, the value, how much.
template <std::uint32_t element>
struct Set {
  template <class Value, class Size>
  static void before(Entry entry, Call& call, CUdeviceptr dst, Value value, Size count, CUstream stream = nullptr) {
    op(entry, call, CallKind::set, stream);
    call.transfer.dst.address = dst;
    call.transfer.width = std::uint64_t{count} * element;
    call.transfer.value = value;
    call.transfer.element = element;
  }
};

// One value over rows: where, with the pitch, the value, how much.
template <std::uint32_t element>
struct Set2D {
  template <class Value>
  static void before(Entry entry, Call& call, CUdeviceptr dst, std::size_t pitch, Value value, std::size_t width,
                     std::size_t height, CUstream stream = nullptr) {
    Set<element>::before(entry, call, dst, value, width, stream);
    call.transfer.dst.pitch = pitch;
    call.transfer.height = height;
  }
};

}  // namespace nimble::shim::decode
