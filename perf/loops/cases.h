// What strided_perf measures: each case is one operation and the ways to get its result.
//
// Stateless functions. The contestants refer to the field and to what they share, which must outlive them.
#pragma once

#include <string>
#include <vector>

#include "perf/loops/field.h"

namespace axccl::perf {

struct Case {
  std::string key;                      // "runs_64": its name in perf/strided
  std::string title;                    // "all_gather of [4096, 4096] on dim 1"
  Sequence sequence;                    // of the data
  std::vector<Contestant> contestants;  // the first is AxCCL
};

struct CaseTask {
  int type;    // ncclDataType_t
  bool quick;  // small operands: everything runs, nothing is measured
};

// "all_gather", "runs", "reduce_scatter", "alltoall", "list", "channel".
const std::vector<std::string>& CaseNames();
FieldSizes SizesFor(const std::vector<std::string>& names, const CaseTask& task, int ranks);
// Calls `measure` for the cases behind one name, one after another, with the inputs filled.
void ForEachCase(const std::string& name, const CaseTask& task, Field* field,
                 const std::function<void(const Case&)>& measure);

}  // namespace axccl::perf
