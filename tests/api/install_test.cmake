# Installs into a fresh folder and builds a consumer from there: by find_package, by pkg-config, and as a program that
# thinks it uses NCCL. Variables: BUILD_DIR, SOURCE_DIR (of this file), WORK_DIR, CXX, C.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
  set(run_output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
# An installation may be moved.
file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)
set(prefix ${WORK_DIR}/prefix)

run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/consumer -B ${WORK_DIR}/consumer -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/consumer)
run(${WORK_DIR}/consumer/consumer)

file(GLOB_RECURSE pc ${prefix}/*/axccl.pc)
get_filename_component(pc_folder ${pc} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${pc_folder})
run(pkg-config --cflags --libs axccl)
separate_arguments(flags UNIX_COMMAND "${run_output}")
run(pkg-config --variable=libdir axccl)
string(STRIP "${run_output}" libdir)
run(pkg-config --variable=dropindir axccl)
string(STRIP "${run_output}" dropin)
run(${C} ${SOURCE_DIR}/consumer/main.c -o ${WORK_DIR}/by_pkg_config ${flags} -Wl,-rpath,${libdir})
run(${WORK_DIR}/by_pkg_config)
set(ENV{LD_PRELOAD} ${libdir}/libaxccl-malloc.so)
run(${WORK_DIR}/by_pkg_config)
unset(ENV{LD_PRELOAD})

# A program that knows NCCL only starts with the drop-in folder alone, and needs nothing of ours by name.
run(${C} ${SOURCE_DIR}/soname_main.c -o ${WORK_DIR}/by_nccl_name -I${prefix}/include/axccl -L${dropin} -lnccl -ldl)
set(ENV{LD_LIBRARY_PATH} ${dropin})
run(${WORK_DIR}/by_nccl_name ours ${libdir}/libaxccl.so)
run(readelf -dW ${WORK_DIR}/by_nccl_name)
if(NOT run_output MATCHES "libnccl\\.so\\.2" OR run_output MATCHES "libaxccl")
  message(FATAL_ERROR "linked with -lnccl, a program needs:\n${run_output}")
endif()

# Programs find the library where they were installed.
set(ENV{LD_LIBRARY_PATH} "")
run(${prefix}/bin/axccl-info)
file(REMOVE_RECURSE ${WORK_DIR})
