#include "shim/record/trace/record.h"

#include "shim/record/facts/graph_table.h"

namespace nimble::shim {

void drop_item(const QueueItem& item) noexcept {
  if (item.type == QueueItem::Type::call) GraphShare(static_cast<const Record&>(item).graph);
}

void drop_items(const RecordBuffer& records) noexcept {
  for_each_item(records, [](const QueueItem& item) noexcept { drop_item(item); });
}

}  // namespace nimble::shim
