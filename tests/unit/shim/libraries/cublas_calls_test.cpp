// Our own types of cuBLAS's functions against its headers, where there are any.
#include "shim/libraries/cublas_calls.h"

#include <gtest/gtest.h>

#if __has_include(<cublasLt.h>) && __has_include(<cublas_v2.h>)
#include <cublasLt.h>
#include <cublas_v2.h>

#include <array>
#include <type_traits>

namespace nimble::shim {
namespace {

// How each argument is passed.
template <class Result, class... Arguments>
constexpr std::array<std::size_t, sizeof...(Arguments)> passed(Result (*)(Arguments...)) {
  static_assert(sizeof(Result) == sizeof(int));
  return {(std::is_pointer_v<Arguments> ? 1000 : 0) + sizeof(Arguments)...};
}

TEST(CublasCalls, HaveTheTypesOfItsHeaders) {
  EXPECT_EQ(passed(static_cast<CublasSetWorkspace*>(nullptr)),
            passed(static_cast<decltype(&::cublasSetWorkspace_v2)>(nullptr)));
  EXPECT_EQ(passed(static_cast<CublasLtMatmul*>(nullptr)), passed(static_cast<decltype(&::cublasLtMatmul)>(nullptr)));
  EXPECT_EQ(static_cast<int>(CublasStatus::not_supported), static_cast<int>(CUBLAS_STATUS_NOT_SUPPORTED));
  EXPECT_EQ(static_cast<int>(CublasStatus::success), static_cast<int>(CUBLAS_STATUS_SUCCESS));
}

}  // namespace
}  // namespace nimble::shim
#endif
