//! A table as a Parquet file, which programs for data analysis read with the types of its columns.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Encoding, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

use crate::data::{DataColumn, DataKind, DataTable, DataValue};

/// The number of cells that are collected before they are written as a group of rows.
const CELLS_OF_A_GROUP: usize = 4_000_000;

/// Writes a table.
///
/// # Errors
/// Those of writing to `target`.
pub(crate) fn write_parquet(
    table: DataTable<'_>,
    target: &mut (dyn Write + Send),
) -> io::Result<()> {
    let mut file = ParquetFile::new(&table.columns, target)?;
    for row in table.rows {
        file.add(row)?;
    }
    file.finish()
}

/// A Parquet file that is being written, with Snappy's compression, which every reader knows.
pub struct ParquetFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<ColumnChunk>,
    /// Number of rows in `columns`.
    rows: usize,
    /// The number of cells from which they are written.
    cells_of_a_group: usize,
}

/// The values of a column that are not yet written.
struct ColumnChunk {
    /// 1 for each row with a value, and 0 for one without; Parquet calls these definition levels.
    levels: Vec<i16>,
    values: ChunkValues,
}

enum ChunkValues {
    Texts(Vec<ByteArray>),
    /// Integers of 64 bits without sign, in the form in which Parquet stores them.
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
}

impl<W: Write + Send> ParquetFile<W> {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// Those of writing to `target`.
    pub fn new(columns: &[DataColumn], target: W) -> io::Result<Self> {
        let fields: Result<Vec<Arc<Type>>, ParquetError> = columns.iter().map(field).collect();
        let schema = fields.and_then(|fields| {
            let schema = Type::group_type_builder("schema");
            schema.with_fields(fields).build()
        });
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("farwire ", env!("CARGO_PKG_VERSION")).to_owned());
        // Integers are numbers and times, most of which differ from the ones before by little.
        let integers = columns
            .iter()
            .filter(|column| column.kind == DataKind::Integer);
        let properties = integers.fold(properties, |properties, column| {
            let path = ColumnPath::from(column.name.as_str());
            properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
        });
        let writer = schema.and_then(|schema| {
            SerializedFileWriter::new(target, Arc::new(schema), Arc::new(properties.build()))
        });
        Ok(Self {
            writer: writer.map_err(written)?,
            columns: columns.iter().map(ColumnChunk::new).collect(),
            rows: 0,
            cells_of_a_group: CELLS_OF_A_GROUP,
        })
    }

    /// Writes the rows in groups of at least this many cells, which are in memory together.
    #[must_use]
    pub fn with_groups_of(mut self, cells: usize) -> Self {
        self.cells_of_a_group = cells;
        self
    }

    /// Adds a row, which has a value for every column.
    ///
    /// # Errors
    /// Those of writing; a value that does not have the type of its column.
    pub fn add<'a>(&mut self, row: impl IntoIterator<Item = DataValue<'a>>) -> io::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.add(value)?;
        }
        self.rows += 1;
        if self.rows * self.columns.len() >= self.cells_of_a_group {
            self.write_group().map_err(written)?;
        }
        Ok(())
    }

    /// Writes the last rows and the end of the file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(written)?;
        }
        self.writer.close().map(drop).map_err(written)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for chunk in &mut self.columns {
            let Some(column) = group.next_column()? else {
                break;
            };
            chunk.write(column)?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

/// Returns the description of a column.
fn field(column: &DataColumn) -> Result<Arc<Type>, ParquetError> {
    let (physical, converted) = match column.kind {
        DataKind::Text => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
        DataKind::Integer => (PhysicalType::INT64, ConvertedType::UINT_64),
        DataKind::Number => (PhysicalType::DOUBLE, ConvertedType::NONE),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_converted_type(converted);
    field.build().map(Arc::new)
}

/// Returns the error of the file system behind an error of the writer, if there is one.
fn written(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        other => io::Error::other(other),
    }
}

impl ColumnChunk {
    fn new(column: &DataColumn) -> Self {
        Self {
            levels: Vec::new(),
            values: match column.kind {
                DataKind::Text => ChunkValues::Texts(Vec::new()),
                DataKind::Integer => ChunkValues::Integers(Vec::new()),
                DataKind::Number => ChunkValues::Numbers(Vec::new()),
            },
        }
    }

    fn add(&mut self, value: DataValue<'_>) -> io::Result<()> {
        self.levels.push(i16::from(value != DataValue::Missing));
        match (&mut self.values, value) {
            (_, DataValue::Missing) => {}
            (ChunkValues::Texts(all), DataValue::Text(text)) => {
                // Neighbouring rows often have the same text, which they then share.
                let same = all.last().filter(|last| last.data() == text.as_bytes());
                let shared = same.cloned();
                all.push(shared.unwrap_or_else(|| ByteArray::from(&*text)));
            }
            (ChunkValues::Integers(all), DataValue::Integer(one)) => all.push(one.cast_signed()),
            (ChunkValues::Numbers(all), DataValue::Number(one)) => all.push(one),
            (_, other) => {
                return Err(io::Error::other(format!(
                    "{other:?} in a column of another type"
                )));
            }
        }
        Ok(())
    }

    /// Writes the values, and removes them.
    fn write(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = mem::take(&mut self.levels);
        let levels = Some(levels.as_slice());
        match &mut self.values {
            ChunkValues::Texts(all) => {
                let writer = column.typed::<ByteArrayType>();
                writer.write_batch(&mem::take(all), levels, None)?;
            }
            ChunkValues::Integers(all) => {
                let writer = column.typed::<Int64Type>();
                writer.write_batch(&mem::take(all), levels, None)?;
            }
            ChunkValues::Numbers(all) => {
                let writer = column.typed::<DoubleType>();
                writer.write_batch(&mem::take(all), levels, None)?;
            }
        }
        column.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::{swept, table};
    use crate::data::{DataRows, DataSelection};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    /// Returns the rows of a file, each value in the form of a table's.
    fn read(bytes: Vec<u8>) -> (Vec<String>, Vec<Vec<DataValue<'static>>>) {
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        let names = schema
            .columns()
            .iter()
            .map(|column| column.name().to_owned());
        let rows = reader.get_row_iter(None).unwrap().map(|row| {
            let row = row.unwrap();
            let values = row.get_column_iter().map(|(_, field)| match field {
                Field::Null => DataValue::Missing,
                Field::Str(text) => DataValue::Text(text.clone().into()),
                Field::ULong(number) => DataValue::Integer(*number),
                Field::Double(number) => DataValue::Number(*number),
                other => panic!("{other:?}"),
            });
            values.collect()
        });
        (names.collect(), rows.collect())
    }

    #[test]
    fn a_file_has_the_columns_and_values_of_its_table() {
        let mut record = swept();
        record.runs[1].seed = u64::MAX;
        for rows in [DataRows::Runs, DataRows::Samples] {
            for with_invalid in [false, true] {
                let selection = DataSelection { rows, with_invalid };
                let mut bytes = Vec::new();
                let written = DataTable::of(&record, selection).unwrap();
                write_parquet(written, &mut bytes).unwrap();
                let expected = table(&record, rows, with_invalid);
                assert!(!expected.1.is_empty());
                assert_eq!(read(bytes), expected);
            }
        }
    }

    #[test]
    fn a_table_without_rows_is_a_file_with_its_columns() {
        let mut record = swept();
        record.runs.clear();
        let selection = DataSelection {
            rows: DataRows::Samples,
            with_invalid: false,
        };
        let mut bytes = Vec::new();
        write_parquet(DataTable::of(&record, selection).unwrap(), &mut bytes).unwrap();
        let (names, rows) = read(bytes);
        assert!(names.contains(&"congestion".to_owned()) && rows.is_empty());
    }

    #[test]
    fn many_rows_are_several_groups() {
        let columns = [DataColumn {
            name: "number".to_owned(),
            kind: DataKind::Integer,
        }];
        let mut bytes = Vec::new();
        let file = ParquetFile::new(&columns, &mut bytes).unwrap();
        let mut file = file.with_groups_of(10);
        for number in 0..13 {
            file.add([DataValue::Integer(number)]).unwrap();
        }
        file.finish().unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let groups = reader.metadata().row_groups().iter();
        let rows: Vec<i64> = groups.map(|group| group.num_rows()).collect();
        assert_eq!(rows, [10, 3]);
    }

    #[test]
    fn a_writer_that_fails_is_named_by_its_own_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let record = swept();
        let selection = DataSelection {
            rows: DataRows::Runs,
            with_invalid: false,
        };
        let table = DataTable::of(&record, selection).unwrap();
        let error = write_parquet(table, &mut Full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
