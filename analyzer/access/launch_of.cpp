#include "analyzer/access/launch_of.h"

#include "analyzer/access/kernel_params.h"

namespace nimble::analyzer {

LaunchOf::LaunchOf(const OpQuestion& op, const AddressExtents& extents) : launch_(op.known) {
  if (launch_ != nullptr) return;
  const std::vector<std::uint32_t> pointers = pointer_words(op);
  launch_ = &own_.emplace(extents).launch(values_of(op, pointers));
}

KnownLaunch* KnownLaunches::of(const OpQuestion& op) {
  if (kernels_ == nullptr || op.call.kind != CallKind::launch) return nullptr;
  const auto& proof = trace_.functions[op.call.function].proof;
  if (!proof) return nullptr;
  of_function_.resize(trace_.functions.size());
  KnownKernel*& kernel = of_function_[op.call.function];
  if (kernel == nullptr) kernel = &kernels_->of(proof->extents);
  const std::vector<std::uint32_t> pointers = pointer_words(op);
  return &kernel->launch(values_of(op, pointers));
}

LaunchValues values_of(const OpQuestion& op, std::span<const std::uint32_t> pointers) {
  return {op.call.params, pointers, op.call.grid, op.call.block};
}

}  // namespace nimble::analyzer
