// A page whose content is one list of blocks: data/pages/NAME.js.
"use strict";

deadheat.show(async () => deadheat.blocks.page(await deadheat.load(`pages/${deadheat.page}`)));
