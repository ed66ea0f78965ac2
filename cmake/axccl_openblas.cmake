# OpenBLAS, which only perf programs and examples use: sets AXCCL_OPENBLAS, and makes the target axccl_openblas if it is ON.
# No program is built with it under a sanitizer, which would not see what it does.
set(AXCCL_OPENBLAS OFF)
if(NOT AXCCL_SANITIZE)
  find_path(AXCCL_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread openblas-serial
    x86_64-linux-gnu/openblas-pthread)
  find_library(AXCCL_OPENBLAS_LIBRARY openblas)
  if(AXCCL_OPENBLAS_INCLUDE AND AXCCL_OPENBLAS_LIBRARY)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${AXCCL_OPENBLAS_INCLUDE})
    set(CMAKE_REQUIRED_LIBRARIES ${AXCCL_OPENBLAS_LIBRARY})
    # Other libraries have a cblas.h, too.
    check_cxx_source_compiles("#include <cblas.h>
      int main() { openblas_set_num_threads(1); return 0; }" AXCCL_OPENBLAS_WORKS)
    unset(CMAKE_REQUIRED_INCLUDES)
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
endif()
if(AXCCL_OPENBLAS_WORKS)
  set(AXCCL_OPENBLAS ON)
  add_library(axccl_openblas INTERFACE)
  target_include_directories(axccl_openblas SYSTEM INTERFACE ${AXCCL_OPENBLAS_INCLUDE})
  target_link_libraries(axccl_openblas INTERFACE ${AXCCL_OPENBLAS_LIBRARY})
else()
  message(STATUS "OpenBLAS was not found (Debian: libopenblas-dev): overlap_perf multiplies with plain loops")
endif()
