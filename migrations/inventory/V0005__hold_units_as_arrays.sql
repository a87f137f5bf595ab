-- Locks: ACCESS EXCLUSIVE on hold until every row of it is written anew. Time: about 20 s per million holds; nothing can be reserved
-- meanwhile, and a process of the version before cannot reserve after it.
-- A hold says which units it has, or had, and no more: what they cost and which seats they are stands with their sector, which
-- does not change once it is on sale. Written with every reservation, a copy of it was most of what a reservation wrote.

SET lock_timeout = '5s';

-- The n-th unit is of the n-th sector; in the order in which they were asked for.
ALTER TABLE hold ADD COLUMN unit_sectors uuid[];
ALTER TABLE hold ADD COLUMN units integer[];
UPDATE hold SET (unit_sectors, units) = (
    SELECT coalesce(array_agg((item ->> 'sector_id')::uuid ORDER BY item_place, unit_place), '{}'),
        coalesce(array_agg((unit ->> 'number')::integer ORDER BY item_place, unit_place), '{}')
    FROM jsonb_array_elements(items) WITH ORDINALITY AS item (item, item_place)
    CROSS JOIN jsonb_array_elements(item -> 'units') WITH ORDINALITY AS unit (unit, unit_place));
-- squawk-ignore adding-not-nullable-field
ALTER TABLE hold ALTER COLUMN unit_sectors SET NOT NULL;
-- squawk-ignore adding-not-nullable-field
ALTER TABLE hold ALTER COLUMN units SET NOT NULL;
ALTER TABLE hold ADD CONSTRAINT hold_units CHECK (cardinality(unit_sectors) = cardinality(units)) NOT VALID;
-- squawk-ignore ban-drop-column
ALTER TABLE hold DROP COLUMN items;
