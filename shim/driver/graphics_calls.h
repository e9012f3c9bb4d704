// Entry points of cudaGL.h, cudaEGL.h and cudaVDPAU.h that are intercepted. Those headers need the graphics APIs' own,
// which few machines have; so we declare the functions here, with plain types of the same size.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace nimble::shim {

// As large as CUeglFrame, and passed by value as it is: in memory.
struct EglFrame {
  std::uint64_t words[8];
};

}  // namespace nimble::shim

extern "C" {

CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource* resource, unsigned buffer, unsigned flags);
CUresult cuGraphicsGLRegisterImage(CUgraphicsResource* resource, unsigned image, unsigned target, unsigned flags);
CUresult cuGLRegisterBufferObject(unsigned buffer);
CUresult cuGLMapBufferObject(CUdeviceptr_v1* pointer, unsigned* size, unsigned buffer);
CUresult cuGLMapBufferObject_v2(CUdeviceptr* pointer, std::size_t* size, unsigned buffer);
CUresult cuGLMapBufferObject_v2_ptds(CUdeviceptr* pointer, std::size_t* size, unsigned buffer);
CUresult cuGLMapBufferObjectAsync(CUdeviceptr_v1* pointer, unsigned* size, unsigned buffer, CUstream stream);
CUresult cuGLMapBufferObjectAsync_v2(CUdeviceptr* pointer, std::size_t* size, unsigned buffer, CUstream stream);
CUresult cuGLMapBufferObjectAsync_v2_ptsz(CUdeviceptr* pointer, std::size_t* size, unsigned buffer, CUstream stream);
CUresult cuGLUnmapBufferObject(unsigned buffer);
CUresult cuGLUnmapBufferObjectAsync(unsigned buffer, CUstream stream);

CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource* resource, void* image, unsigned flags);
CUresult cuGraphicsResourceGetMappedEglFrame(void* frame, CUgraphicsResource resource, unsigned index, unsigned level);
CUresult cuEGLStreamConsumerConnect(void* connection, void* stream);
CUresult cuEGLStreamConsumerConnectWithFlags(void* connection, void* stream, unsigned flags);
CUresult cuEGLStreamConsumerAcquireFrame(void* connection, CUgraphicsResource* resource, CUstream* stream,
                                         unsigned timeout);
CUresult cuEGLStreamConsumerReleaseFrame(void* connection, CUgraphicsResource resource, CUstream* stream);
CUresult cuEGLStreamProducerConnect(void* connection, void* stream, int width, int height);
CUresult cuEGLStreamProducerPresentFrame(void* connection, nimble::shim::EglFrame frame, CUstream* stream);
CUresult cuEGLStreamProducerReturnFrame(void* connection, void* frame, CUstream* stream);
CUresult cuEventCreateFromEGLSync(CUevent* event, void* sync, unsigned flags);

CUresult cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource* resource, std::uint32_t surface, unsigned flags);
CUresult cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource* resource, std::uint32_t surface, unsigned flags);
}
