// From the operands a caller of axccl/views.h gives to those the executor takes: read, checked, and their blocks found.
#pragma once

#include <string>
#include <vector>

#include "axccl/views.h"
#include "src/base/status.h"
#include "src/exec/call.h"
#include "src/exec/operands.h"
#include "src/plan/contract.h"
#include "src/tensor/view.h"

namespace axccl::api {

// The arguments of a call on views.
struct ViewRequest {
  const char* name;  // of the call
  plan::Kind kind;
  int count;
  const axcclView_t* input;
  const axcclView_t* output;
  const axcclOptions_t* options;
  int dim = 0;  // as tensor::Collective has it
  int concat_dim = 0;
  int root = 0;
};

// A call on one rank: what its checks need to know.
struct ViewContext {
  const ViewRequest& request;
  plan::Contract contract;
  int position;  // of the rank

  // How messages call an operand, -1 standing for the only one.
  int Index(int index) const { return request.count == 1 ? -1 : index; }
  std::string Name(const char* side, int index) const {
    return request.count == 1 ? side : std::string(side) + " " + std::to_string(index);
  }
};

// One rank's views of one operand, as far as it has them.
struct ViewPair {
  bool has_input = false, has_output = false;
  tensor::View input, output;
  DataType type = DataType::kInt8;

  const tensor::View* Input() const { return has_input ? &input : nullptr; }
  const tensor::View* Output() const { return has_output ? &output : nullptr; }
};

// Reads the operands, each checked by itself and for the same datatype on both sides.
Status ReadOperands(const ViewContext& context, std::vector<ViewPair>* operands);
// That no output of an operand lies over anything of another one.
Status CheckApart(const ViewContext& context, const std::vector<ViewPair>& operands);
// That input and output of an operand have nothing in common, or that `from` and `to`, the parts of them that may
// coincide (null: none may), are the same elements.
Status CheckInPlace(const ViewContext& context, int index, const ViewPair& operand, const tensor::View* from,
                    const tensor::View* to);
// Finds the blocks of an operand whose blocks are alike, in the dimensions that the request names.
Status CheckOperand(const ViewContext& context, int index, const ViewPair& operand, tensor::Blocks* blocks);
// What of an operand does not depend on its blocks, and all of one whose blocks are alike.
exec::ViewOperand Convert(const ViewPair& operand);
Status ConvertBlocks(const ViewContext& context, int index, const ViewPair& operand, const tensor::Blocks& blocks,
                     exec::ViewOperand* to);
// Makes one of several operands one of bytes if its elements could be cut where operands of a list are.
Status LowerToBytes(const ViewContext& context, int index, exec::ViewOperand* operand);

// This rank's operands in a group of `group_size` ranks where it is at `position`. Nothing is read or written but the
// structs. Operands that the rank does not have are not looked at.
Status FindOperands(const ViewRequest& request, int group_size, int position, exec::ViewList* list);

// The outputs of a rank that is in no group of the channel and holds zeros afterwards; none if it gives none.
Status FindOutsideOperands(const ViewRequest& request, exec::ViewList* list);

// The executor's calls for a list: as many as the bucket cap, and what a channel has room to announce, make of it, each
// with at least one operand. An uneven list is one call.
Status MakeCalls(const ViewRequest& request, exec::ViewList list, std::vector<exec::Call>* calls);

}  // namespace axccl::api
