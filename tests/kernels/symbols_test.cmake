# Fails when an object compiled for one instruction set defines a symbol that another object could share: the linker
# keeps one of several equal inline functions, and it may be the one that this machine cannot run.
# Usage: cmake -DNM=nm -DOBJECT=mover_isa.o -DISA=avx2 -P symbols_test.cmake
execute_process(COMMAND ${NM} -C --defined-only --extern-only ${OBJECT} OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${NM} cannot read ${OBJECT}")
endif()
string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
set(seen FALSE)
foreach(line IN LISTS lines)
  if(line MATCHES "axccl::kernels::${ISA}::kTable$")
    set(seen TRUE)
  else()
    message(SEND_ERROR "${OBJECT} defines a shared symbol: ${line}")
  endif()
endforeach()
if(NOT seen)
  message(FATAL_ERROR "${OBJECT} does not define axccl::kernels::${ISA}::kTable; found: ${symbols}")
endif()
