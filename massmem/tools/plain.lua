-- For Pandoc: keeps what a text says and how it is built, and drops its looks: bold, anchors, escapes.

local function is_data(address)
  return address:sub(1, 5) == "data:"
end

local function keep_content(element)
  return element.content
end

local function name_picture(image)
  local caption = pandoc.utils.stringify(image.caption)
  local source = is_data(image.src) and "" or image.src
  return pandoc.RawInline("markdown", "[picture: " .. (caption ~= "" and caption or source) .. "]")
end

local function unescape(text)
  -- Else Pandoc writes file_name as file\_name.
  return pandoc.RawInline("markdown", text.text)
end

local plain = pandoc.WriterOptions({ wrap_text = "none" })

local function write_cell(cell)
  local text = pandoc.write(pandoc.Pandoc(cell.contents), "plain", plain)
  return (text:gsub("^%s+", ""):gsub("%s+$", ""):gsub("%s*\n%s*", " "):gsub("|", "\\|"))
end

local function list_rows(table)
  local rows = pandoc.List(table.head.rows)
  for _, body in ipairs(table.bodies) do
    rows:extend(body.head)
    rows:extend(body.body)
  end
  rows:extend(table.foot.rows)
  return rows
end

local function flatten(table)
  -- Cells over several columns or rows, and lists in cells, would make it HTML.
  local lines, taken, width = {}, {}, #table.colspecs
  for number, row in ipairs(list_rows(table)) do
    local column, texts = 1, {}
    for _, cell in ipairs(row.cells) do
      while taken[number .. " " .. column] do column = column + 1 end
      texts[column] = write_cell(cell)
      for down = 0, cell.row_span - 1 do
        for right = 0, cell.col_span - 1 do taken[(number + down) .. " " .. (column + right)] = true end
      end
    end
    for at = 1, width do texts[at] = texts[at] or "" end
    local line = _G.table.concat(texts, " | ", 1, width)
    if line:find("[^| ]") then lines[#lines + 1] = "| " .. line .. " |" end
  end
  if #lines == 0 then return {} end
  _G.table.insert(lines, 2, "|" .. string.rep(" --- |", width))
  return pandoc.RawBlock("markdown", _G.table.concat(lines, "\n"))
end

local function unlink(link)
  if is_data(link.target) or link.target:sub(1, 1) == "#" then
    return link.content
  end
end

local look = {
  Strong = keep_content, Emph = keep_content, Underline = keep_content, Span = keep_content, SmallCaps = keep_content,
  Div = keep_content, Image = name_picture, Link = unlink,
}

return { look, { Table = flatten }, { Str = unescape } }
