# add_gpu_image(<target> SOURCE <file.cu> OUTPUT <path> [FLAGS ...])
#
# Builds a kernel source with nvcc into a fatbin: machine code for each architecture that this nvcc knows, and PTX of the
# newest for later ones. Without nvcc it makes no target. Relative paths are relative to the current source folder
# (SOURCE) and the current binary folder (OUTPUT).
function(add_gpu_image target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE;OUTPUT" "FLAGS")
  if(NOT NIMBLE_NVCC)
    return()
  endif()
  execute_process(COMMAND ${NIMBLE_NVCC} --list-gpu-code OUTPUT_VARIABLE known_code COMMAND_ERROR_IS_FATAL ANY)
  set(architectures)
  foreach(arch 75 80 86 89 90 100 120)
    if(known_code MATCHES "sm_${arch}[\r\n]")
      list(APPEND architectures -gencode arch=compute_${arch},code=sm_${arch})
      set(newest ${arch})
    endif()
  endforeach()
  list(APPEND architectures -gencode arch=compute_${newest},code=compute_${newest})
  get_filename_component(source ${arg_SOURCE} ABSOLUTE)
  get_filename_component(output ${arg_OUTPUT} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${NIMBLE_NVCC} -fatbin -std=c++17 -O3 ${arg_FLAGS} -Wno-deprecated-gpu-targets -I${CMAKE_SOURCE_DIR}
            ${architectures} ${source} -o ${output}
    DEPENDS ${source} ${CMAKE_SOURCE_DIR}/tests/simcuda/image/kernel.h
    COMMENT "Building ${arg_OUTPUT}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${output})
endfunction()
