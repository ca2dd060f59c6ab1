"""zarr's view of a store in which a chunk that is missing is an error. It imports zarr: import it late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from demur.stores.errors import StoreError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class StrictStore(WrapperStore[Store]):
    """A store whose every chunk has to be there; without it, zarr takes the fill value in silence."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        found = await self._store.get(key, prototype, byte_range)
        if found is None and key.rpartition("/")[2] not in _METADATA:
            raise StoreError(
                f"the chunk {key} is missing: copy or write the store again; chunks of nothing but zeros "
                "have to be written, too, with write_empty_chunks"
            )
        return found
