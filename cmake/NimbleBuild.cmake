# What every target of the project is compiled with. Presets choose the build type and the options below.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Functions and lines, which a backtrace needs; what a debugger wants beyond that takes a quarter of the time to compile.
string(REPLACE "-g " "-g1 " CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
string(REPLACE "-g " "-g1 " CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")

option(NIMBLE_WERROR "Treat warnings as errors" OFF)
option(NIMBLE_CLANG_TIDY "Run clang-tidy on every file" OFF)
set(NIMBLE_SANITIZER "" CACHE STRING "Sanitizer for the whole build: address or thread")

add_library(nimble_build INTERFACE)
target_compile_options(nimble_build INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow -Wno-unused-parameter -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<AND:$<BOOL:${NIMBLE_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
if(NIMBLE_SANITIZER)
  string(REPLACE "-O2" "-O1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  set(sanitize -fsanitize=${NIMBLE_SANITIZER} -fno-omit-frame-pointer)
  if(NIMBLE_SANITIZER STREQUAL "address")
    # Of the undefined-behaviour checks those that the address sanitizer does not see anyway; the others double the time
    # that the build takes.
    set(undefined bool,bounds,enum,float-cast-overflow,integer-divide-by-zero,return,shift,signed-integer-overflow,unreachable)
    list(APPEND sanitize -fsanitize=${undefined} -fno-sanitize-recover=${undefined})
  endif()
  # g++ warns of uninitialised values in code that the sanitizers wrote.
  target_compile_options(nimble_build INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>
    $<$<CXX_COMPILER_ID:GNU>:$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized>>)
  target_link_options(nimble_build INTERFACE ${sanitize})
endif()
if(NIMBLE_CLANG_TIDY)
  find_program(CLANG_TIDY NAMES clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY})
endif()

# What most files of a target include, parsed once for all of them. Each file names what it needs all the same: the dev
# preset builds without this, and so sees one that does not.
function(nimble_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN} <algorithm> <array> <atomic> <cstdint> <cstring> <functional> <map>
    <memory> <mutex> <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector>)
endfunction()

# The same for a library, in builds with sanitizers alone: where g++ optimises, it then warns of the C++ library's own code.
function(nimble_precompile_library target)
  if(NIMBLE_SANITIZER)
    nimble_precompile(${target} ${ARGN})
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
        -Wno-stringop-overread>>)
  endif()
endfunction()
