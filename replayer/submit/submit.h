// Turns an op's live values into driver arguments: node parameters for graphs, or the call itself. Stateless.
#pragma once

#include "replayer/driver/driver_api.h"
#include "replayer/match/op_match.h"

namespace nimble {

// The parameters of a kernel node. `arguments` receives pointers into the live parameter buffer and must live as long.
CUDA_KERNEL_NODE_PARAMS kernel_node(const Schedule& schedule, const OpMatch& live, std::uint32_t index,
                                    std::vector<void*>& arguments);
CUDA_MEMCPY3D copy_node(const Schedule& schedule, const OpMatch& live, std::uint32_t index);
CUDA_MEMSET_NODE_PARAMS set_node(const OpMatch& live, std::uint32_t index);

// Makes the op's call on `stream`, as the program did. `scratch` is reused from call to call.
CUresult submit_call(const DriverApi& driver, const Schedule& schedule, const OpMatch& live, std::uint32_t index,
                     CUstream stream, std::vector<void*>& scratch);

}  // namespace nimble
