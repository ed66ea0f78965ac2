// Calls on views in worlds (world.h): each rank's operands have their own strides.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/kernels/cuda/world.h"

namespace axccl::kernels::cuda {

// An operand on one rank, whose blocks follow each other along one of its dimensions.
struct World::Tensor {
  std::vector<int64_t> sizes, strides;  // of a block, in elements
  int64_t step = 0;                     // elements from one block to the next
  int64_t first = 0;                    // element of the memory with index 0
  int64_t room = 0;                     // elements of the memory
  int blocks = 0;
  uint64_t at = 0;  // first element in the block of the call
  uint8_t* memory = nullptr;

  int64_t Place(int block, uint64_t i) const {
    int64_t place = first + block * step;
    for (size_t d = sizes.size(); d-- > 0; i /= static_cast<uint64_t>(sizes[d]))
      place += static_cast<int64_t>(i % static_cast<uint64_t>(sizes[d])) * strides[d];
    return place;
  }
};

namespace {

// Sizes whose product is `count`.
std::vector<int64_t> Factors(uint64_t count, harness::Random* random) {
  if (count == kTiledCount && !random->OneIn(3)) return {18, 20};
  std::vector<int64_t> sizes;
  for (uint64_t f : {2, 3, 2, 5, 4}) {
    if (count == 0 || count % f != 0 || random->OneIn(3)) continue;
    sizes.push_back(static_cast<int64_t>(f));
    count /= f;
  }
  if (count != 1 || random->OneIn(3)) sizes.push_back(static_cast<int64_t>(count));
  if (random->OneIn(4)) sizes.insert(sizes.begin(), 1);
  std::rotate(sizes.begin(), sizes.begin() + static_cast<int64_t>(random->Below(sizes.size() + 1)), sizes.end());
  return sizes;
}

}  // namespace

void World::MakeTensor(int blocks, const std::vector<int64_t>& sizes, Tensor* tensor) {
  const size_t num = sizes.size();
  tensor->sizes = sizes;
  tensor->strides.assign(num, 0);
  tensor->blocks = blocks;
  const size_t along = num == 0 ? 0 : random_.Below(num);
  std::vector<size_t> order(num);  // fastest first
  for (size_t i = 0; i < num; ++i) order[i] = num - 1 - i;
  if (num > 1 && random_.OneIn(2)) std::swap(order[random_.Below(num)], order[random_.Below(num)]);
  const bool gaps = random_.OneIn(2);
  int64_t stride = 1, before = 0, after = 0;
  for (const size_t d : order) {
    if (gaps) stride += static_cast<int64_t>(random_.Below(4));
    const int64_t size = std::max<int64_t>(sizes[d], 1) * (d == along ? std::max(blocks, 1) : 1);
    tensor->strides[d] = random_.OneIn(8) ? -stride : stride;
    (tensor->strides[d] < 0 ? before : after) += stride * (size - 1);
    if (d == along) tensor->step = tensor->strides[d] * sizes[d];
    stride *= size;
  }
  if (num == 0) {
    tensor->step = 1;
    after = blocks;
  }
  tensor->first = before;
  tensor->room = blocks == 0 ? 0 : before + after + 1;
}

void World::FillTensor(const Tensor& tensor, bool output, Part* part, std::vector<uint8_t>* image) const {
  const CallSpec& call = part->call;
  const size_t element = ElementSize(call.type);
  const auto elements =
      static_cast<uint64_t>(std::accumulate(tensor.sizes.begin(), tensor.sizes.end(), int64_t{1}, std::multiplies<>()));
  for (int b = 0; b < tensor.blocks; ++b) {
    for (uint64_t i = 0; i < elements; ++i) {
      const int64_t value =
          output ? WantedValue(call, part->rank, b, tensor.at + i) : InputValue(call, part->rank, b, tensor.at + i);
      StoreValue(call.type, value,
                 tensor.memory + static_cast<size_t>(tensor.Place(b, i)) * element - part->input + image->data());
    }
  }
}

void World::MakeViews(Part* part) {
  const CallSpec& call = part->call;
  const plan::Contract contract{call.kind, ranks_, call.root};
  const size_t element = ElementSize(call.type), num = call.views.size();
  const int inputs = plan::InputBlocks(contract, part->rank), outputs = plan::OutputBlocks(contract, part->rank);
  std::vector<Tensor> tensors(2 * num);
  part->view_table.resize((sizeof(ViewTable) + num * sizeof(ViewOperand)) / 8);
  auto* const table = new (part->view_table.data()) ViewTable;
  auto* const operands = const_cast<ViewOperand*>(table->operands());
  table->num_operands = static_cast<uint32_t>(num);
  if (call.scale != 0) {
    part->task.scaling = Scaling::kResult;
    part->task.scalar = exec::FactorOf(call.type, call.scale).u64;
  }
  uint64_t at = 0;
  harness::Random shapes(harness::Scramble(seed_, call.count, static_cast<uint64_t>(call.kind)));
  for (size_t i = 0; i < num; ++i) {
    at = (at + 63) / 64 * 64;
    const std::vector<int64_t> sizes = Factors(call.views[i], &shapes);
    ViewOperand& operand = *new (operands + i) ViewOperand;
    operand.at = at;
    operand.count = call.views[i];
    operand.element = static_cast<uint32_t>(element);
    operand.num_dims = static_cast<uint32_t>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), operand.sizes);
    for (size_t side = 0; side < 2; ++side) {
      Tensor& tensor = tensors[2 * i + side];
      MakeTensor(side == 0 ? inputs : outputs, sizes, &tensor);
      tensor.at = at / element;
    }
    at += call.views[i] * element;
  }
  part->task.views = table;
  PlaceTensors(operands, &tensors, part);
}

// Places all operands in one piece of memory, whose image is Part::wanted_output.
void World::PlaceTensors(ViewOperand* operands, std::vector<Tensor>* tensors, Part* part) {
  const size_t element = ElementSize(part->call.type);
  uint64_t bytes = 0;
  for (const Tensor& tensor : *tensors) bytes += static_cast<uint64_t>(tensor.room) * element + 128;
  part->memory.resize(bytes / 8 + 16, 0x5a5a5a5a5a5a5a5a);
  auto* to = reinterpret_cast<uint8_t*>(part->memory.data());
  part->input = part->output = to;
  part->wanted_output.assign(to, to + bytes);
  std::vector<uint8_t> before = part->wanted_output;
  const Device& device = *devices_[static_cast<size_t>(part->rank)];
  for (size_t i = 0; i < tensors->size(); ++i) {
    Tensor& tensor = (*tensors)[i];
    const bool output = i % 2 == 1;
    tensor.memory = to + random_.Below(16) * element % 32 / element * element;
    to += (static_cast<size_t>(tensor.room) * element + 32 + 63) / 64 * 64;
    FillTensor(tensor, output, part, &part->wanted_output);
    if (!output) FillTensor(tensor, output, part, &before);
    ViewPlace& place = operands[i / 2].own;
    const auto map = static_cast<uint32_t>(random_.Below(2));
    (output ? place.output_map : place.input_map) = map;
    (output ? place.output_offset : place.input_offset) =
        reinterpret_cast<uint64_t>(tensor.memory) + static_cast<uint64_t>(tensor.first) * element - device.maps[map];
    (output ? place.output_step : place.input_step) = tensor.step * static_cast<int64_t>(element);
    std::copy(tensor.strides.begin(), tensor.strides.end(), output ? place.output_strides : place.input_strides);
  }
  std::copy(before.begin(), before.end(), part->output);
}

}  // namespace axccl::kernels::cuda
