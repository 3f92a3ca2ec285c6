# Fails where an instruction set's object file defines a weak symbol: the linker keeps one copy of those for the whole
# program, and if it keeps that one, machines without the instructions crash. Arguments: -DNM=... -DOBJECTS=a;b
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${NM} could not read ${object}")
  endif()
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]*" weak "${symbols}")
  list(FILTER weak EXCLUDE REGEX " DW\\.ref\\.")  # a pointer to the exception personality, not code
  string(REGEX MATCHALL "[0-9a-f]+ [TDRB] smoe::[a-z0-9]+_kernels" tables "${symbols}")
  if(weak)
    string(REPLACE ";" "\n  " weak "${weak}")
    message(FATAL_ERROR "${object} defines weak symbols; give them internal linkage:\n  ${weak}")
  endif()
  list(APPEND all_tables ${tables})
endforeach()
if(NOT all_tables)  # the files of other architectures are empty, but one must be for this one
  message(FATAL_ERROR "No kernel table in ${OBJECTS}: are these the right files?")
endif()
