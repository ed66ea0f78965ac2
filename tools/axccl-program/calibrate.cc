#include "tools/axccl-program/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <vector>

#include "src/base/format.h"
#include "src/program/check.h"
#include "src/program/reference/scalar.h"
#include "src/program/simulate/machines.h"
#include "tools/axccl-program/calibration_program.h"
#include "tools/axccl-program/inputs.h"
#include "tools/axccl-program/run.h"

namespace axccl::tools {

using program::Machines;
using program::Measured;
using program::OpKind;

namespace {

constexpr double kLeastSeconds = 1e-9;

// When each result of each rank was there, for all repetitions one after the other.
using Stamps = std::vector<std::vector<double>>;

// Of one operation of the block: its time from when the first rank begins until the last one has ended, evenly divided.
// The least of the repetitions: what else the machine does only adds to it.
double SecondsOf(const CalibrationBlock& block, size_t results, const Stamps& stamps) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t first = 0; first < stamps[0].size(); first += results) {
    double begin = stamps[0][first + block.begin], end = 0;
    for (const std::vector<double>& of_rank : stamps) {
      begin = std::min(begin, of_rank[first + block.begin]);
      end = std::max(end, of_rank[first + block.end]);
    }
    least = std::min(least, end - begin);
  }
  // A rank sends a message and receives one, and its stream is busy with each.
  const int calls = block.kind == OpKind::kSend ? 2 * block.count : block.count;
  return std::max(kLeastSeconds, least / calls);
}

// Rounded to four digits: more was not measured.
double Rounded(double x) {
  if (x <= 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(x)) - 3);
  return std::strtod(Format("%.4g", std::round(x / unit) * unit).c_str(), nullptr);
}

// Of each of ProductSample's work.
using Figures = std::array<double, kProductFigures>;

// The figures that are not left out for which the relative errors of all samples have the least sum of squares.
Figures LeastSquares(const std::vector<ProductSample>& samples, const std::array<bool, kProductFigures>& left_out) {
  constexpr size_t kSide = kProductFigures;  // the column behind the matrix
  double m[kProductFigures][kProductFigures + 1] = {};
  for (const ProductSample& sample : samples) {
    for (size_t i = 0; i < kProductFigures; ++i) {
      for (size_t j = 0; j < kProductFigures; ++j)
        m[i][j] += sample.work[i] * sample.work[j] / sample.seconds / sample.seconds;
      m[i][kSide] += sample.work[i] / sample.seconds;
    }
  }
  for (size_t i = 0; i < kProductFigures; ++i) {
    for (size_t j = 0; left_out[i] && j <= kSide; ++j) m[i][j] = j == i ? 1 : 0;
    for (size_t j = 0; left_out[i] && j < kProductFigures; ++j) m[j][i] = j == i ? 1 : 0;
  }
  for (size_t i = 0; i < kProductFigures; ++i) {
    for (size_t row = 0; row < kProductFigures; ++row) {
      const double factor = row == i ? 0 : m[row][i] / m[i][i];
      for (size_t j = 0; j <= kSide; ++j) m[row][j] -= factor * m[i][j];
    }
  }
  Figures figures{};
  for (size_t i = 0; i < kProductFigures; ++i) figures[i] = m[i][kSide] / m[i][i];
  return figures;
}

double* RateOf(DataType type, Machines* machines) {
  switch (type) {
    case DataType::kFloat64:
      return &machines->f64_flops;
    case DataType::kFloat32:
      return &machines->f32_flops;
    case DataType::kBfloat16:
      return &machines->f16_flops;
    default:
      return &machines->integer_flops;
  }
}

void AddTables(const CalibrationProgram& calibration, const Stamps& stamps, Machines* machines) {
  std::map<DataType, std::vector<ProductSample>> products;
  for (const CalibrationBlock& block : calibration.blocks) {
    const double seconds = SecondsOf(block, calibration.results, stamps);
    const program::MeasuredPoint point{std::round(block.bytes), Rounded(seconds)};
    if (block.measures == Measures::kOperation) {
      machines->measured.operations[block.kind].push_back(point);
    } else if (block.measures == Measures::kCall) {
      machines->measured.calls[{block.kind, block.group}].push_back(point);
    } else {
      products[block.type].push_back(
          {{block.batches, block.flops, block.matrix_bytes[0], block.matrix_bytes[1], block.matrix_bytes[2]}, seconds});
      *RateOf(block.type, machines) = Rounded(block.flops / seconds);  // that of the largest one stays
    }
  }
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64})
    machines->measured.products[type] = FitProducts(products.at(type));
}

// What the figures before the tables say of the same.
void SetFigures(int ranks, Machines* machines) {
  const auto& operations = machines->measured.operations;
  const program::MeasuredCurve &add = operations.at(OpKind::kAdd), &copy = operations.at(OpKind::kCopy);
  machines->ranks_per_machine = ranks;
  machines->memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                           static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / static_cast<uint64_t>(ranks);
  machines->launch_seconds = add[0].seconds;
  machines->element_flops = Rounded(add[2].bytes / 12 / add[2].seconds);  // in the cache
  sim::Fabric& fabric = machines->fabric;
  fabric.memory_bytes_per_second = Rounded(copy.back().bytes / copy.back().seconds);
  const auto messages = machines->measured.calls.find({OpKind::kSend, 2});
  if (messages == machines->measured.calls.end()) {  // one rank
    fabric.link_bytes_per_second = fabric.memory_bytes_per_second;
    fabric.signal_seconds = machines->launch_seconds;
  } else {
    fabric.link_bytes_per_second = Rounded(messages->second.back().bytes / messages->second.back().seconds);
    fabric.signal_seconds = messages->second[0].seconds;
  }
  fabric.op_seconds = Rounded(fabric.signal_seconds / 4);
  fabric.nic_bytes_per_second = fabric.link_bytes_per_second;
  fabric.message_seconds = fabric.op_seconds;
  fabric.network_seconds = std::max(1e-9, fabric.signal_seconds);
}

// Of floats, 0.5 to 1.5: no logarithm or root has a result that takes longer than others.
std::vector<program::Tensors> UsualInputs(const program::Program& program) {
  std::vector<program::Tensors> inputs = RandomInputs(program, 1);
  for (program::Tensors& of_rank : inputs) {
    for (program::Tensor& input : of_rank) {
      if (!IsFloat(input.type.data_type)) continue;
      program::VisitScalar(input.type.data_type, [&](auto scalar) {
        for (int64_t i = 0; i < Elements(input.type); ++i)
          scalar.Store(static_cast<typename decltype(scalar)::Number>(1 + scalar.Load(input.at(i)) / 2), input.at(i));
      });
    }
  }
  return inputs;
}

}  // namespace

Measured::Product FitProducts(const std::vector<ProductSample>& samples) {
  std::array<bool, kProductFigures> left_out = {};
  Figures figures = LeastSquares(samples, left_out);
  for (auto least = std::min_element(figures.begin(), figures.end()); *least < 0;
       least = std::min_element(figures.begin(), figures.end())) {
    left_out[static_cast<size_t>(least - figures.begin())] = true;
    figures = LeastSquares(samples, left_out);
  }
  return {Rounded(figures[0]), Rounded(figures[1]), Rounded(figures[2]), Rounded(figures[3]), Rounded(figures[4])};
}

Result<std::string> Calibrate(int ranks, const RunOptions& how, int repetitions) {
  const CalibrationProgram calibration = MakeCalibration(ranks);
  AXCCL_RETURN_IF_ERROR(program::Check(calibration.program));
  Stamps stamps(static_cast<size_t>(ranks));
  for (std::vector<double>& of_rank : stamps) of_rank.reserve(calibration.results * static_cast<size_t>(repetitions));
  const program::Observer stamp = [&](int rank, const program::Operation&, size_t, const program::Tensor&) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    stamps[static_cast<size_t>(rank)].push_back(std::chrono::duration<double>(now).count());
  };
  RunOptions repeated = how;
  repeated.repeat = repetitions;
  AXCCL_RETURN_IF_ERROR(
      RunOnThreads(calibration.program, UsualInputs(calibration.program), stamp, nullptr, repeated).status());
  Machines machines;
  machines.measured.one_stream = true;  // `run` waits for each collective
  AddTables(calibration, stamps, &machines);
  SetFigures(ranks, &machines);
  return Format("# Measured by axccl-program calibrate, %d ranks on %ld cores; ", ranks,
                sysconf(_SC_NPROCESSORS_ONLN)) +
         "op_seconds and the figures of networks were not\n# measured: they follow from a message within the "
         "machine.\n" +
         Print(machines);
}

}  // namespace axccl::tools
