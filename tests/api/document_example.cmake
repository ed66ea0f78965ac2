# Writes a ```c block of DOCUMENT to OUTPUT, so that what the document shows is what is compiled and run. BLOCK is its
# number, from 1.
file(READ ${DOCUMENT} text)
foreach(i RANGE 1 ${BLOCK})
  string(FIND "${text}" "```c\n" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "${DOCUMENT} has no C example ${i}")
  endif()
  math(EXPR begin "${begin} + 5")
  string(SUBSTRING "${text}" ${begin} -1 text)
endforeach()
string(FIND "${text}" "```" end)
string(SUBSTRING "${text}" 0 ${end} text)
file(WRITE ${OUTPUT} "${text}")
