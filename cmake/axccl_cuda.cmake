# The parts of the CUDA toolkit that AxCCL needs to build: nvcc and its tools for the kernels, and cuda.h for the
# driver's types. None of it is linked: the driver is loaded when a program first uses a GPU. Sets AXCCL_CUDA, and with
# it AXCCL_NVCC, AXCCL_ptxas, AXCCL_nvlink, AXCCL_fatbinary and AXCCL_CUDA_INCLUDE (the folder of cuda.h).
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
  if(AXCCL_NVCC AND AXCCL_ptxas AND AXCCL_nvlink AND AXCCL_fatbinary AND AXCCL_CUDA_INCLUDE)
    set(AXCCL_CUDA ON)
    message(STATUS "CUDA device: built with ${AXCCL_NVCC}")
  else()
    message(STATUS "Left out: the CUDA device (no nvcc, or no cuda.h)")
  endif()
else()
  message(STATUS "Left out: the CUDA device (AXCCL_WITH_CUDA is off)")
endif()
