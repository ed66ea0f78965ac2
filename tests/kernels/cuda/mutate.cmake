# cmake -DSOURCE=in -DFOLDER=dir -DOUTPUT=out -P mutate.cmake: a copy of a source with the text of dir/from.txt replaced by
# that of dir/to.txt. The text must occur exactly once, so that mutations keep up with the source.
file(READ ${SOURCE} text)
file(READ ${FOLDER}/from.txt from)
file(READ ${FOLDER}/to.txt to)
string(FIND "${text}" "${from}" first)
string(FIND "${text}" "${from}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR "${SOURCE} does not have exactly one '${from}' to mutate")
endif()
string(REPLACE "${from}" "${to}" text "${text}")
file(WRITE ${OUTPUT} "${text}")
