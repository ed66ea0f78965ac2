#include "tools/axccl-info/topology.h"

#include <cstdio>

#include "src/base/files.h"
#include "src/base/json.h"
#include "src/base/param.h"
#include "src/base/processors.h"
#include "src/topo/discover.h"
#include "src/topo/draw.h"
#include "src/topo/place.h"
#include "src/topo/text.h"

namespace axccl_info {
namespace {

using axccl::JsonWriter;
using axccl::Result;
using axccl::Status;
namespace topo = axccl::topo;

void WriteInts(const std::vector<int>& numbers, JsonWriter* json) {
  json->BeginList();
  for (const int number : numbers) json->Int(number);
  json->EndList();
}

void WriteCore(const topo::Core& core, JsonWriter* json) {
  json->BeginObject();
  json->Key("l1_bytes").Int(static_cast<int64_t>(core.l1));
  json->Key("l2_bytes").Int(static_cast<int64_t>(core.l2));
  WriteInts(core.processors, &json->Key("processors"));
  json->EndObject();
}

void WritePackage(const topo::Package& package, JsonWriter* json) {
  json->BeginObject();
  json->Key("groups").BeginList();
  for (const topo::Group& group : package.groups) {
    json->BeginObject();
    json->Key("node").Int(group.node);
    json->Key("l3_bytes").Int(static_cast<int64_t>(group.l3));
    json->Key("cores").BeginList();
    for (const topo::Core& core : group.cores) WriteCore(core, json);
    json->EndList();
    json->EndObject();
  }
  json->EndList();
  json->EndObject();
}

void WriteDevices(const topo::Machine& machine, JsonWriter* json) {
  json->Key("nics").BeginList();
  for (const topo::Nic& nic : machine.nics) {
    json->BeginObject();
    json->Key("name").String(nic.name);
    json->Key("kind").String(topo::Name(nic.kind));
    json->Key("megabits_per_second").Int(static_cast<int64_t>(nic.megabits));
    json->Key("node").Int(nic.node);
    json->EndObject();
  }
  json->EndList();
  json->Key("gpus").BeginList();
  for (const topo::Gpu& gpu : machine.gpus) {
    json->BeginObject();
    json->Key("address").String(gpu.address);
    json->Key("megabits_per_second").Int(static_cast<int64_t>(gpu.megabits));
    json->Key("node").Int(gpu.node);
    json->EndObject();
  }
  json->EndList();
}

std::string AsJson(const topo::Machine& machine, const std::vector<topo::Seat>& seats) {
  return axccl::JsonText([&](JsonWriter* json) {
    json->BeginObject();
    json->Key("processor").String(machine.processor);
    json->Key("nodes").BeginList();
    for (const topo::Node& node : machine.nodes) {
      json->BeginObject();
      json->Key("id").Int(node.id);
      json->Key("bytes").Int(static_cast<int64_t>(node.bytes));
      json->EndObject();
    }
    json->EndList();
    json->Key("packages").BeginList();
    for (const topo::Package& package : machine.packages) WritePackage(package, json);
    json->EndList();
    WriteDevices(machine, json);
    json->Key("ranks").BeginList();
    for (const topo::Seat& seat : seats) {
      json->BeginObject();
      WriteInts(seat.processors, &json->Key("processors"));
      WriteInts(seat.nodes, &json->Key("nodes"));
      json->Key("nic");
      seat.nic == topo::kNowhere ? json->Null() : json->String(machine.nics[static_cast<size_t>(seat.nic)].name);
      json->EndObject();
    }
    json->EndList();
  });
}

Result<std::string> Draw(const Options& options) {
  AXCCL_ASSIGN_OR_RETURN(const topo::Found found, topo::FileOrDiscover(topo::FileUse::kShow));
  if (!found.remark.empty()) std::fprintf(stderr, "axccl-info: %s\n", found.remark.c_str());
  const topo::Machine& machine = found.machine;
  topo::PlaceOptions place;
  place.ranks = options.ranks;
  // The binding of this process does not apply to a machine read from a file.
  if (axccl::param::Get("NCCL_TOPO_FILE").empty()) place.allowed = axccl::AllowedProcessors();
  const std::vector<topo::Seat> seats = topo::Place(machine, place);
  if (options.json) return AsJson(machine, seats);
  switch (options.format) {
    case Format::kSvg:
      return topo::DrawSvg(machine, seats);
    case Format::kFile:
      return topo::Print(machine);
    case Format::kText:
      break;
  }
  return topo::DrawText(machine, seats);
}

}  // namespace

int ShowTopology(const Options& options) {
  const Result<std::string> picture = Draw(options);
  Status status = picture.status();
  if (status.ok() && !options.output.empty()) {
    status = axccl::WriteWholeFile(options.output, picture.value());
  } else if (status.ok()) {
    std::fputs(picture.value().c_str(), stdout);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "axccl-info: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace axccl_info
