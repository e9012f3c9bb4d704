# Finds what Nimble is built with. Nothing is fetched here: scripts/setup installs what is missing.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(spdlog REQUIRED) # headers alone, with the fmt of below: libnimble.so asks for no library
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(nimble_xxhash INTERFACE)
target_include_directories(nimble_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(nimble_xxhash INTERFACE XXH_INLINE_ALL)

# LZ4 and Zstandard, in which fatbins are compressed: as archives, since libnimble.so must not ask for libraries that a
# program's machine may not have. Its version script keeps their names inside.
foreach(library lz4 zstd)
  string(TOUPPER ${library} upper)
  find_path(${upper}_INCLUDE_DIR ${library}.h REQUIRED)
  find_library(${upper}_ARCHIVE lib${library}.a REQUIRED)
  add_library(nimble_${library} INTERFACE)
  target_include_directories(nimble_${library} SYSTEM INTERFACE ${${upper}_INCLUDE_DIR})
  target_link_libraries(nimble_${library} INTERFACE ${${upper}_ARCHIVE})
endforeach()

# D3, with which the report's page is drawn: it becomes part of the page, and so does its licence.
find_file(NIMBLE_D3 d3.min.js PATHS /usr/share/nodejs/d3/dist REQUIRED)
find_file(NIMBLE_D3_LICENCE NAMES copyright LICENSE PATHS /usr/share/doc/node-d3 REQUIRED)

# cuda.h of CUDA 13.0 or later, and cupti.h: headers only, nothing is linked. The header wheels that scripts/setup
# fetches lie in ${CMAKE_SOURCE_DIR}/build/cuda-headers.
find_program(NIMBLE_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NIMBLE_NVCC)
  get_filename_component(nvcc_real ${NIMBLE_NVCC} REALPATH)
  get_filename_component(nvcc_bin ${nvcc_real} DIRECTORY)
  get_filename_component(nvcc_root ${nvcc_bin} DIRECTORY)
endif()
foreach(candidate "${NIMBLE_CUDA_INCLUDE_DIR}" "$ENV{CUDA_HOME}/include" /usr/local/cuda/include "${nvcc_root}/include"
        ${CMAKE_SOURCE_DIR}/build/cuda-headers/include)
  if(candidate AND EXISTS ${candidate}/cuda.h)
    file(STRINGS ${candidate}/cuda.h version_line REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+$" version "${version_line}")
    if(version GREATER_EQUAL 13000)
      set(NIMBLE_CUDA_INCLUDE_DIR ${candidate} CACHE PATH "Folder that holds cuda.h (13.0 or later)" FORCE)
      break()
    endif()
  endif()
endforeach()
if(NOT EXISTS "${NIMBLE_CUDA_INCLUDE_DIR}/cuda.h")
  message(FATAL_ERROR "No cuda.h of CUDA 13.0 or later was found. Run scripts/setup, or set NIMBLE_CUDA_INCLUDE_DIR.")
endif()
add_library(nimble_cuda_headers INTERFACE)
target_include_directories(nimble_cuda_headers SYSTEM INTERFACE ${NIMBLE_CUDA_INCLUDE_DIR})
message(STATUS "CUDA headers: ${NIMBLE_CUDA_INCLUDE_DIR}")
