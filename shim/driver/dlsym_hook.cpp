// Compiled without sanitizers: sanitizer runtimes call dlsym before they have set themselves up.
#include "shim/driver/dlsym_hook.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/driver/exported_names.h"
#include "shim/driver/interception.h"
#include "shim/driver/libc_symbols.h"
#include "shim/driver/real_driver.h"
#include "shim/driver/va_reservation.h"
#include "shim/process/log.h"

// nimble_call_as(a, b, c, function, gadget): function(a, b, c), called so that it takes `gadget`, the address of a
// return instruction, for its return address. The return instruction then comes back here.
asm(R"(
  .text
  .globl nimble_call_as
  .hidden nimble_call_as
  .type nimble_call_as, @function
  .p2align 4
nimble_call_as:
  leaq 1f(%rip), %rax
  pushq %rax
  pushq %r8
  jmp *%rcx
1:
  ret
  .size nimble_call_as, .-nimble_call_as
)");

extern "C" {

void* nimble_call_as(void* handle, const char* name, const char* version, void* function, const void* gadget);

// The exported functions share one section, whose bounds the linker defines. Null in programs without them (tests).
__attribute__((weak, visibility("hidden"))) extern const char __start_nimble_exports[];
__attribute__((weak, visibility("hidden"))) extern const char __stop_nimble_exports[];

void* (*nimble_next_dlsym)(void*, const char*) = nullptr;
void* (*nimble_next_dlvsym)(void*, const char*, const char*) = nullptr;
void* (*nimble_next_dlopen)(const char*, int) = nullptr;
void (*nimble_next_exit)(int) = nullptr;
void* nimble_next_setrlimit = nullptr;
void* nimble_next_prlimit = nullptr;
}

namespace nimble::shim {

namespace {

using Dlsym = void* (*)(void*, const char*);

Dlsym g_libc_dlsym = nullptr;

// A driver function that is not intercepted: a lookup that finds it finds the driver.
constexpr const char* kNotIntercepted = "cuDriverGetVersion";
static_assert(std::none_of(std::begin(kCallSymbols), std::end(kCallSymbols),
                           [](std::string_view symbol) { return symbol == kNotIntercepted; }));

bool is_ours(const void* pointer) { return pointer >= __start_nimble_exports && pointer < __stop_nimble_exports; }

// Not strcmp, which sanitizers intercept, and may not be ready for.
bool same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

bool is_one_of(const char* name, std::span<const char* const> calls) {
  return std::any_of(calls.begin(), calls.end(), [&](const char* call) { return same(call, name); });
}

// "cu" and a capital letter: the driver's names. We export few of cuBLAS's and CUPTI's.
bool may_be_exported(const char* name) {
  if (!name || name[0] != 'c' || name[1] != 'u') return false;
  return (name[2] >= 'A' && name[2] <= 'Z') || is_one_of(name, kCublasCalls) || is_one_of(name, kCuptiCalls);
}

// Other threads may be doing the same; they find the same.
template <class Function>
void set(Function& place, void* found) {
  __atomic_store_n(&place, reinterpret_cast<Function>(found), __ATOMIC_RELEASE);
}

const link_map* object_of(const void* address) {
  Dl_info info;
  void* map = nullptr;
  return dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0 ? static_cast<const link_map*>(map) : nullptr;
}

// A return instruction in the same page as `caller`, and so in the same object; null where there is none, or where the
// processor checks return addresses.
const void* return_instruction_near(const void* caller) {
  std::uint64_t shadow_stack = 0;
  asm volatile(".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8" : "+a"(shadow_stack));  // rdsspq: leaves 0 where there is none
  if (shadow_stack != 0 || !object_of(caller)) return nullptr;
  constexpr std::uintptr_t kPage = 4096;
  constexpr unsigned char kReturn = 0xc3;
  const auto* const from = static_cast<const unsigned char*>(caller);
  const auto* const begin =
      reinterpret_cast<const unsigned char*>(reinterpret_cast<std::uintptr_t>(caller) & ~(kPage - 1));
  const auto* found = std::find(from, begin + kPage, kReturn);
  if (found == begin + kPage) found = std::find(begin, from, kReturn);
  return found != from || *from == kReturn ? found : nullptr;
}

// What `function`, a dlsym or (with a version) a dlvsym, answers to `caller`. For RTLD_NEXT and RTLD_DEFAULT the answer
// depends on the object that holds its return address, so it gets one in the caller's object.
void* ask(void* function, void* handle, const char* name, const char* version, const void* caller) {
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
    if (const void* const gadget = return_instruction_near(caller))
      return nimble_call_as(handle, name, version, function, gadget);
  }
  if (version) return reinterpret_cast<decltype(nimble_next_dlvsym)>(function)(handle, name, version);
  return reinterpret_cast<Dlsym>(function)(handle, name);
}

// A driver that is missing from the table of real pointers: in another namespace, or from another file.
void warn_of_second_driver(const void* pointer, const char* name) {
  static std::atomic<bool> said{false};
  const link_map* const object = object_of(pointer);
  if (!object || !object->l_name || said.load(std::memory_order_relaxed)) return;
  const char* const slash = std::strrchr(object->l_name, '/');
  const bool is_driver = std::strncmp(slash ? slash + 1 : object->l_name, "libcuda.so", 10) == 0;
  const bool known = std::any_of(std::begin(kCallSymbols), std::end(kCallSymbols),
                                 [&](const char* symbol) { return std::strcmp(symbol, name) == 0; });
  if (!is_driver || !known || said.exchange(true)) return;
  try {
    log(LogLevel::warning, std::string("a second copy of the driver is in use, from ") + object->l_name +
                               ": calls through it are not seen");
  } catch (...) {  // out of memory: no message
  }
}

// The definition of `name` in the caller's library, or in those that it was linked against.
void* in_library_of(const void* caller, const char* name) {
  const link_map* const object = object_of(caller);
  if (!object || !object->l_name || !*object->l_name) return nullptr;
  void* const handle = nimble_next_dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return nullptr;
  void* const found = g_libc_dlsym(handle, name);
  dlclose(handle);
  return is_ours(found) ? nullptr : found;
}

// The search found our own export, `found`: by RTLD_DEFAULT, RTLD_NEXT, or the program's handle. Without us it would
// have gone on in the order of the program's libraries, and then in those that the caller was opened with. Null where
// that finds nothing.
nimble_answer beyond_our_export(void* found, void* handle, const char* name, const void* caller) {
  void* other = g_libc_dlsym(RTLD_NEXT, name);
  if (!other && handle == RTLD_DEFAULT) {
    other = in_library_of(caller, name);
    // We cannot list everything in a caller's scope, but we can ask whether the driver is in it.
    if (!other && ask(reinterpret_cast<void*>(g_libc_dlsym), handle, kNotIntercepted, nullptr, caller))
      other = driver_symbol(name);
  }
  if (!other) return {g_libc_dlsym(RTLD_NEXT, name), 1};  // null, and dlerror says so
  return {intercepting() ? found : other, 1};
}

nimble_answer exported_symbol_for(void* next, void* handle, const char* name, const char* version, const void* caller) {
  // The real answer decides, as with cuGetProcAddress: other libraries may have functions of the same name. Where there
  // is none, the jump asks again, and dlerror is set for the caller.
  void* const found = ask(next, handle, name, version, caller);
  if (!found) return {nullptr, 0};
  nimble_answer answer{found, 1};
  if (is_ours(found)) {
    answer = beyond_our_export(found, handle, name, caller);
    if (!answer.pointer) return answer;
  } else if (intercepting() && /* the driver's lookups are its own */ object_of(caller) != driver_library()) {
    answer.pointer = wrapper_for_pointer(found);
    if (answer.pointer == found) warn_of_second_driver(found, name);
  }
  // A program that looks CUPTI's entry functions up will call them by pointer, past our export.
  if (is_one_of(name, kCuptiCalls)) cupti_client_comes();
  dlerror();  // clears the errors of our own lookups: this one succeeded
  return answer;
}

}  // namespace

std::atomic<void (*)() noexcept> g_on_cupti_client{nullptr};

void cupti_client_comes() noexcept {
  if (const auto give_way = g_on_cupti_client.load(std::memory_order_acquire)) give_way();
}

void find_next_hooks() {
  if (nimble_next_exit) return;
  // First libc's own, without allocating; then, through them, the next library's.
  set(g_libc_dlsym, libc_symbol("dlsym"));
  set(nimble_next_dlsym, libc_symbol("dlsym"));
  set(nimble_next_dlvsym, libc_symbol("dlvsym"));
  set(nimble_next_dlopen, libc_symbol("dlopen"));
  set(nimble_next_setrlimit, libc_symbol("setrlimit"));
  set(nimble_next_prlimit, libc_symbol("prlimit"));
  set(nimble_next_exit, libc_symbol("_exit"));  // the last one: from here on, reentrant calls find all of them
  const auto advance = [](auto& next, const char* name) {
    if (void* const found = g_libc_dlsym(RTLD_NEXT, name)) set(next, found);
  };
  advance(nimble_next_dlvsym, "dlvsym");
  advance(nimble_next_dlopen, "dlopen");
  advance(nimble_next_exit, "_exit");
  advance(nimble_next_setrlimit, "setrlimit");
  advance(nimble_next_prlimit, "prlimit");
  advance(nimble_next_dlsym, "dlsym");
}

namespace {

// Adds the object's file name. 1 (out of memory) ends the walk: no exception may pass through the loader.
int add_file(dl_phdr_info* object, std::size_t, void* files) try {
  if (*object->dlpi_name) static_cast<std::vector<std::string>*>(files)->emplace_back(object->dlpi_name);
  return 0;
} catch (...) {
  return 1;
}

// A caller that names no library may have been opened by one that does.
void* in_any_library(const char* name) {
  std::vector<std::string> files;  // no lookups while the loader's lock is held
  dl_iterate_phdr(&add_file, &files);
  for (const std::string& file : files) {
    void* const handle = nimble_next_dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) continue;
    void* const found = g_libc_dlsym(handle, name);
    dlclose(handle);
    if (found && !is_ours(found)) return found;
  }
  return nullptr;
}

}  // namespace

void* find_beyond(const void* caller, const char* name) {
  find_next_hooks();
  void* found = in_library_of(caller, name);
  if (!found) found = g_libc_dlsym(RTLD_NEXT, name);
  if (!found) found = in_any_library(name);
  const link_map* const object = found ? object_of(found) : nullptr;
  if (object && object->l_name && *object->l_name)
    nimble_next_dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  dlerror();  // errors in here are not the program's
  return found;
}

void* real_dlsym(void* handle, const char* name) {
  find_next_hooks();
  return g_libc_dlsym(handle, name);
}

}  // namespace nimble::shim

using namespace nimble::shim;

nimble_answer nimble_dlsym_filter(void* handle, const char* name, const void* caller) {
  if (!nimble_next_dlsym) [[unlikely]]
    find_next_hooks();
  if (!may_be_exported(name)) [[likely]]
    return {nullptr, 0};
  return exported_symbol_for(reinterpret_cast<void*>(nimble_next_dlsym), handle, name, nullptr, caller);
}

nimble_answer nimble_dlvsym_filter(void* handle, const char* name, const char* version, const void* caller) {
  if (!nimble_next_dlvsym) [[unlikely]]
    find_next_hooks();
  if (!name || !version) return {nullptr, 0};
  if (may_be_exported(name)) {
    return exported_symbol_for(reinterpret_cast<void*>(nimble_next_dlvsym), handle, name, version, caller);
  }
  // dlvsym skips unversioned definitions, so a library before us that hooks dlsym and looks the next one up by version
  // would find libc's and bypass us. By name alone it finds ours, if ours is next. In off mode, too: such a lookup may
  // come before the mode is known.
  for (const char* const hook : {"dlsym", "dlvsym", "dlopen"}) {
    if (!same(name, hook)) continue;
    void* const found = ask(reinterpret_cast<void*>(g_libc_dlsym), handle, name, nullptr, caller);
    if (is_ours(found)) return {found, 1};
  }
  return {nullptr, 0};
}

int nimble_dlopen_filter(const char* file, int flags) {
  if (!nimble_next_dlopen) [[unlikely]]
    find_next_hooks();
  if (!(flags & RTLD_DEEPBIND) || !intercepting()) [[likely]]
    return flags;
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    try {
      log(LogLevel::warning, std::string(file ? file : "a library") +
                                 " was opened with RTLD_DEEPBIND, which would hide its calls from Nimble: opened "
                                 "without that flag");
    } catch (...) {  // out of memory: no message
    }
  }
  return flags & ~RTLD_DEEPBIND;
}

// Runs before setrlimit and prlimit, perhaps while a sanitizer is being set up. Does not read the new limit: the
// program may have passed an invalid pointer, and reading it here could crash.
void nimble_before_limit(int resource, const void* limit) {
  if (!nimble_next_setrlimit || !nimble_next_prlimit) [[unlikely]]
    find_next_hooks();
  if (resource == RLIMIT_AS && limit) give_addresses_back();
}

// The same for prlimit; process 0 is this one.
void nimble_before_limit_of(int process, int resource, const void* limit) {
  nimble_before_limit(resource, process == 0 || process == ::getpid() ? limit : nullptr);
}
