// From the operands a caller of axccl/views.h gives to those the executor takes: read, checked, and their blocks found.
#pragma once

#include "axccl/views.h"
#include "src/base/status.h"
#include "src/exec/operands.h"
#include "src/plan/contract.h"

namespace axccl::api {

// The arguments of a call on views.
struct ViewRequest {
  const char* name;  // of the call
  plan::Kind kind;
  int count;
  const axcclView_t* input;
  const axcclView_t* output;
  const axcclOptions_t* options;
  int dim = 0;  // as plan::Collective has it
  int concat_dim = 0;
  int root = 0;
};

// This rank's operands in a group of `group_size` ranks where it is at `position`. Nothing is read or written but the
// structs. Operands that the rank does not have are not looked at.
Status FindOperands(const ViewRequest& request, int group_size, int position, exec::ViewList* list);

}  // namespace axccl::api
