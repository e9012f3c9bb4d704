#include "shim/state/call_context.h"

#include "shim/driver/real_driver.h"
#include "shim/state/code/function_table.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

namespace {

class Context final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction handle) override { return functions_.find(handle); }
  StreamKind stream_kind(const StreamRef& stream) override { return streams().kind(stream); }
  void* driver_symbol(const char* name) override { return known_driver_symbol(name); }

 private:
  FunctionTable& functions_ = functions();
};

}  // namespace

CallContext& call_context() {
  static Context* const instance = new Context;
  return *instance;
}

}  // namespace nimble::shim
