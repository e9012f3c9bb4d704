// cuGetProcAddress, both versions: from a plain name and a CUDA version to the symbol that had this meaning then.
#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/driver/generated_exports.h"

using namespace simcuda;

namespace {

constexpr int kDriverVersion = 13000;
constexpr int kPerThreadSince = 7000;

struct Version {
  int since;
  void *legacy, *per_thread;  // the latter null where there is none
};

void* address_of(const std::string& symbol) {
  const SimExport* end = simcuda_exports + simcuda_export_count;
  const SimExport* found = std::lower_bound(
      simcuda_exports, end, symbol,
      [](const SimExport& entry, const std::string& name) { return std::strcmp(entry.name, name.c_str()) < 0; });
  return found != end && symbol == found->name ? reinterpret_cast<void*>(found->function) : nullptr;
}

Version version_of(const std::string& symbol, int since) {
  void* per_thread = address_of(symbol + "_ptsz");
  return {since, address_of(symbol), per_thread != nullptr ? per_thread : address_of(symbol + "_ptds")};
}

using Table = std::map<std::string, std::vector<Version>>;

Table make_table() {
  Table table;
  const auto add = [&](const char* versions, const char* names) {
    std::istringstream all(names);
    for (std::string name; all >> name;) {
      std::istringstream numbers(versions);
      int since = 0;
      for (int index = 1; numbers >> since; ++index) {
        table[name].push_back(version_of(index == 1 ? name : name + "_v" + std::to_string(index), since));
      }
    }
  };
#define SIM_VERSIONS(versions, names) add(versions, names);
#include "tests/simcuda/driver/entry_versions.def"
  // Since 12.0 the plain name means what was called WithFlags before.
  table["cuGraphInstantiate"].push_back(version_of("cuGraphInstantiateWithFlags", 12000));
  return table;
}

CUresult look_up(const char* symbol, void** out, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult& status) {
  status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (symbol == nullptr || out == nullptr || version > kDriverVersion ||
      (flags & ~cuuint64_t{CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  static const Table& table = *new Table(make_table());
  *out = nullptr;
  const auto found = table.find(symbol);
  if (found == table.end()) return CUDA_ERROR_NOT_FOUND;
  status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  const Version* best = nullptr;
  for (const Version& candidate : found->second) {
    if (candidate.since <= version) best = &candidate;
  }
  if (best == nullptr) return CUDA_ERROR_NOT_FOUND;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 && version >= kPerThreadSince;
  *out = per_thread && best->per_thread != nullptr ? best->per_thread : best->legacy;
  status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_CALL(cuGetProcAddress, kNothing, (const char* symbol, void** out, int version, cuuint64_t flags),
         (symbol, out, version, flags)) {
  CUdriverProcAddressQueryResult status;
  return look_up(symbol, out, version, flags, status);
}

// With a place for the status, a name that is not found is no error: the status says so.
SIM_CALL(cuGetProcAddress_v2, kNothing,
         (const char* symbol, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status),
         (symbol, out, version, flags, status)) {
  CUdriverProcAddressQueryResult found;
  const CUresult result = look_up(symbol, out, version, flags, found);
  if (status == nullptr || result == CUDA_ERROR_INVALID_VALUE) return result;
  *status = found;
  return symbol[0] == '\0' ? result : CUDA_SUCCESS;
}
