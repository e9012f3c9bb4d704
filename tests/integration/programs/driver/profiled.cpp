// A program that profiles part of its own work with CUPTI, as torch.profiler does: `profiled linked` calls CUPTI's
// functions as the linker bound them, `profiled lookup` as dlsym finds them. Prints what CUPTI showed it.
#include <cupti.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "tests/integration/programs/common/workload.h"

namespace {

struct Cupti {
  decltype(&::cuptiSubscribe) subscribe;
  decltype(&::cuptiUnsubscribe) unsubscribe;
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&::cuptiActivityEnable) enable;
  decltype(&::cuptiActivityDisable) disable;
  decltype(&::cuptiActivityFlushAll) flush;
  decltype(&::cuptiActivityGetNextRecord) next;
};

Cupti g_cupti{};
int g_kernels = 0;

Cupti linked() {
  return {&cuptiSubscribe,       &cuptiUnsubscribe,      &cuptiActivityRegisterCallbacks, &cuptiActivityEnable,
          &cuptiActivityDisable, &cuptiActivityFlushAll, &cuptiActivityGetNextRecord};
}

Cupti looked_up() {
  void* const library = dlopen("libcupti.so.13", RTLD_NOW);
  Cupti cupti{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library ? dlsym(library, name) : nullptr);
    if (!function) std::exit(3);
  };
  find(cupti.subscribe, "cuptiSubscribe");
  find(cupti.unsubscribe, "cuptiUnsubscribe");
  find(cupti.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(cupti.enable, "cuptiActivityEnable");
  find(cupti.disable, "cuptiActivityDisable");
  find(cupti.flush, "cuptiActivityFlushAll");
  find(cupti.next, "cuptiActivityGetNextRecord");
  return cupti;
}

void CUPTIAPI request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  *bytes = std::size_t{1} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *bytes));
  *most = 0;
}

void CUPTIAPI complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t bytes) {
  CUpti_Activity* record = nullptr;
  while (g_cupti.next(buffer, bytes, &record) == CUPTI_SUCCESS)
    g_kernels += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  std::free(buffer);
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Driver driver = linked_driver();
  Work work = start_work(driver);
  launch_work(driver, work, kWorkLaunches);
  std::printf("%u\n", finish_work(driver, work));
  g_cupti = std::strcmp(argv[1], "linked") == 0 ? linked() : looked_up();
  CUpti_SubscriberHandle subscriber = nullptr;
  std::printf("subscribed: %d\n", g_cupti.subscribe(&subscriber, &on_call, nullptr));
  std::printf("registered: %d\n", g_cupti.register_callbacks(&request, &complete));
  std::printf("enabled: %d\n", g_cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  launch_work(driver, work, kWorkLaunches);
  std::printf("%u\n", finish_work(driver, work));
  g_cupti.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  g_cupti.flush(1);
  if (subscriber) g_cupti.unsubscribe(subscriber);
  launch_work(driver, work, kWorkLaunches);
  std::printf("%u\n", finish_work(driver, work));
  std::printf("kernels seen: %d\n", g_kernels);
}
