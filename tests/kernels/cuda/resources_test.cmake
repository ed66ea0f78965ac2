# cmake -DNVLINK=tool -DFOLDER=dir -P resources_test.cmake: what the kernel needs of each kind of processor. The
# driver sets the stack aside for every thread that can run at a time, so a large one costs hundreds of megabytes. Two
# blocks share the shared memory of a processor, of which the smallest has 64 KiB: 31 KiB for each, with 1 KiB that the
# driver takes (which nvlink counts on sm_90). From that, ring.h computes what is left for copies in bulk, and cuda_ring_test
# checks that two blocks fit with that, too.
file(GLOB objects ${FOLDER}/kernels.*.cubin.o)
list(LENGTH objects num)
if(num LESS 2)
  message(FATAL_ERROR "${FOLDER} has ${num} objects")
endif()
foreach(object IN LISTS objects)
  string(REGEX MATCH "kernels\\.([0-9]+)\\." arch ${object})
  set(arch ${CMAKE_MATCH_1})
  execute_process(COMMAND ${NVLINK} -v -arch=sm_${arch} ${object} -o /dev/null OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(most 31744)
  foreach(kernel axccl_run_one axccl_run)
    if(NOT text MATCHES "'${kernel}'[^']*used ([0-9]+) registers[^']* ([0-9]+) stack, ([0-9]+) bytes smem")
      message(FATAL_ERROR "sm_${arch}: no ${kernel} in: ${text}")
    endif()
    if(CMAKE_MATCH_1 GREATER 64 OR CMAKE_MATCH_2 GREATER 512 OR CMAKE_MATCH_3 GREATER ${most})
      message(FATAL_ERROR "too much for sm_${arch}: ${text}")
    endif()
  endforeach()
  message(STATUS "sm_${arch}: ${CMAKE_MATCH_1} registers, ${CMAKE_MATCH_2} bytes of stack, ${CMAKE_MATCH_3} of shared memory")
endforeach()
