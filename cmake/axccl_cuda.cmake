# The parts of the CUDA toolkit that AxCCL needs to build: nvcc and its tools for the kernels, and cuda.h for the
# driver's types. None of it is linked: the driver is loaded when a program first uses a GPU. Sets AXCCL_CUDA, and with
# it AXCCL_NVCC, AXCCL_ptxas, AXCCL_nvlink, AXCCL_fatbinary, AXCCL_CUDA_INCLUDE (the folder of cuda.h) and
# AXCCL_CUDA_VERSION (12020 is 12.2).
option(AXCCL_WITH_CUDA "Build the CUDA device where the toolkit is found" ON)
# PTX is all that the software GPU needs, and the only format under a sanitizer: seconds instead of minutes. Drivers
# translate it when they load it.
set(ptx_only OFF)
if(AXCCL_SANITIZE)
  set(ptx_only ON)
endif()
option(AXCCL_PTX_ONLY "Build the device code as PTX without machine code" ${ptx_only})

set(AXCCL_CUDA OFF)
if(AXCCL_WITH_CUDA)
  find_program(AXCCL_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(AXCCL_NVCC)
    get_filename_component(nvcc_real ${AXCCL_NVCC} REALPATH)
    get_filename_component(nvcc_bin ${nvcc_real} DIRECTORY)
    foreach(tool ptxas nvlink fatbinary)
      find_program(AXCCL_${tool} ${tool} HINTS ${nvcc_bin})
    endforeach()
    find_path(AXCCL_CUDA_INCLUDE cuda.h HINTS ${nvcc_bin}/../include ${nvcc_bin}/../targets/x86_64-linux/include
      /usr/local/cuda/include /usr/lib/cuda/include NO_DEFAULT_PATH)
    find_path(AXCCL_CUDA_INCLUDE cuda.h)
  endif()
  set(AXCCL_CUDA_VERSION 0)
  if(AXCCL_CUDA_INCLUDE)
    file(STRINGS ${AXCCL_CUDA_INCLUDE}/cuda.h AXCCL_CUDA_VERSION REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX REPLACE "[^0-9]" "" AXCCL_CUDA_VERSION "${AXCCL_CUDA_VERSION}")
  endif()
  if(AXCCL_CUDA_INCLUDE AND AXCCL_CUDA_VERSION LESS 12020)  # multicast objects, and multimem instructions that add in float
    message(STATUS "Left out: the CUDA device (the toolkit is of CUDA_VERSION ${AXCCL_CUDA_VERSION}; 12.2 or later is needed)")
  elseif(AXCCL_NVCC AND AXCCL_ptxas AND AXCCL_nvlink AND AXCCL_fatbinary AND AXCCL_CUDA_INCLUDE)
    set(AXCCL_CUDA ON)
    message(STATUS "CUDA device: built with ${AXCCL_NVCC}")
  else()
    message(STATUS "Left out: the CUDA device (no nvcc, or no cuda.h)")
  endif()
else()
  message(STATUS "Left out: the CUDA device (AXCCL_WITH_CUDA is off)")
endif()
